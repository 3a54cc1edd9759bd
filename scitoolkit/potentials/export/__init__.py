"""Potentials as C libraries without Python: sources, CMake, a weights file, and their callers.

An exported model is a folder. Its library takes a graph of atoms and returns energies and edge
gradients through the functions of `stk_model.h`; C, Fortran, LAMMPS and `LibraryCalculator` call
the same ones.
"""
