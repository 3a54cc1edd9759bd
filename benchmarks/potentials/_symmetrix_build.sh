#!/bin/bash
# Builds symmetrix' serial MACE (not its Kokkos one) with the flags of its CMakeLists.txt, and the
# program that times it: _symmetrix_build.sh ENVIRONMENT. OpenBLAS is that of scipy-openblas32.
set -e
here=$(cd "$(dirname "$0")" && pwd) source=$1/source
library=$source/libsymmetrix external=$source/libsymmetrix/external
if [ ! -d "$source" ]; then
  git clone --quiet https://github.com/wcwitt/symmetrix "$source"
  git -C "$source" checkout --quiet 739660a
  git -C "$source" submodule --quiet update --init libsymmetrix/external/{cblas-prototypes,json,sphericart}
fi
blas=$("$1/bin/python" -c 'import scipy_openblas32 as blas; print(blas.get_lib_dir())')
files=$(ls "$library"/source/*.cpp | grep -v _kokkos)
prefixed=$(for name in dgemm dgemv dcopy ddot; do echo "-Dcblas_$name=scipy_cblas_$name"; done)
${CXX:-g++} -O3 -march=native -ffast-math -std=c++20 -fopenmp $prefixed -I"$library/source" \
  -I"$external/json/single_include" -I"$external/sphericart/sphericart/include" \
  "$here/_symmetrix_peer.cpp" $files "$external/sphericart/sphericart/src/sphericart.cpp" \
  -L"$blas" -Wl,-rpath,"$blas" -lscipy_openblas -o "$1/peer"
