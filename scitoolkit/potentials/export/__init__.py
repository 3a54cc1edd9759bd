"""Export of potentials as C libraries without Python.

An exported model is a folder with sources, a CMake file, a library and a weights file. The library
computes energies and edge gradients of a graph of atoms through the functions of `stk_model.h`,
which C, Fortran, LAMMPS and `LibraryCalculator` call.
"""
