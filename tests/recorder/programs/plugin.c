// A library with nothing but an image.
const char image[] = ".version 7.0\n.visible .entry _Z5scalePdPKddi()\n{\n ret;\n}\n// in a plugin\n";
