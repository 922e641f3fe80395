// Physical constants (SI units), the layout of the state and the numbers of the scheme.
#pragma once

constexpr double GRAVITY = 9.8;          // m/s^2
constexpr double GAS_CONSTANT = 287.0;   // dry air, J/(kg K)
constexpr double HEAT_PRESSURE = 1004.0; // specific heat at constant pressure, J/(kg K)
constexpr double HEAT_VOLUME = 717.0;    // specific heat at constant volume, J/(kg K)
constexpr double SURFACE_PRESSURE = 1.0e5; // Pa
constexpr double SURFACE_THETA = 300.0;  // K
constexpr double PI = 3.14159265358979323846;

// The domain of both cases, in m.
constexpr double DOMAIN_X = 20000.0;
constexpr double DOMAIN_Z = 10000.0;

// state[variable][z][x]: deviation from the hydrostatic background, with HALO ghost cells on every side.
constexpr int DENSITY = 0;
constexpr int MOMENTUM_X = 1;
constexpr int MOMENTUM_Z = 2;
constexpr int DENSITY_THETA = 3;
constexpr int VARIABLES = 4;
constexpr int HALO = 2;

constexpr int THERMAL = 0; // a warm bubble rises in air of constant potential temperature
constexpr int GRAVITY_WAVE = 1; // a warm disturbance in a stratified wind sends out gravity waves

constexpr double WIND = 20.0;         // m/s, gravity wave only
constexpr double BUOYANCY_FREQUENCY = 0.01; // Brunt-Vaisala frequency in 1/s, gravity wave only

constexpr double HYPERVISCOSITY = 0.05; // part of a wave of two cells that is damped in a time step
constexpr double FASTEST_SPEED = 450.0; // m/s, bound for sound and wind together
constexpr double COURANT = 1.2;

constexpr int REDUCTION_THREADS = 128; // threads in a block of diagnostics
