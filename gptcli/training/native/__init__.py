"""Loss and gradient of small models in C++ compiled on this machine: no overhead for each operation."""
