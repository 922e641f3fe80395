// Stand-in: the device prelude, included before every source, has all of it that a kernel needs.
#pragma once
