! Pool of surrogates with a memory budget: Fortran interface of scitoolkit_pool.c.
!
! Compile after scitoolkit_pool.c: cc -c scitoolkit_pool.c; gfortran scitoolkit_pool.f90 solver.f90
! scitoolkit_pool.o -ldl -lpthread -lm. Arrays are real(c_float) and contiguous, in Fortran order:
! the dims of the description (stk_about) are reversed, so that the sample is the last. Functions
! return a status: 0, 1 and 2 as surrogates do (computed; computed, but an input is outside the box
! of the training inputs; not finite), 16 and more as below; stk_error returns the message.
module scitoolkit_pool
  use, intrinsic :: iso_c_binding
  implicit none
  private
  public :: stk_pool, stk_array, stk_counts, stk_view
  public :: stk_new, stk_free, stk_add, stk_remove, stk_prefetch, stk_call, stk_about
  public :: stk_statistics, stk_error

  integer(c_int), parameter, public :: STK_POOL_UNKNOWN = 16    ! no surrogate or function of this name
  integer(c_int), parameter, public :: STK_POOL_TAKEN = 17      ! the name is in use
  integer(c_int), parameter, public :: STK_POOL_TOO_LARGE = 18  ! larger than the budget
  integer(c_int), parameter, public :: STK_POOL_FILE = 19       ! no such file, damaged, no code
  integer(c_int), parameter, public :: STK_POOL_ARGUMENTS = 20  ! wrong number or size of arrays
  integer(c_int), parameter, public :: STK_POOL_MEMORY = 21     ! no memory

  ! A pool; created by stk_new and freed by stk_free when no call is in progress.
  type :: stk_pool
    private
    type(c_ptr) :: handle = c_null_ptr
  end type

  ! An array argument of any rank; created by stk_view.
  type :: stk_array
    private
    type(c_ptr) :: values = c_null_ptr
    integer(c_int64_t) :: numbers = -1
  end type

  type, bind(C) :: stk_counts
    integer(c_int64_t) :: calls, hits, loads, evictions, failures, models, resident_bytes, &
        held_bytes, budget_bytes
  end type

  ! View of an array as an input or output of stk_call; the array must have the attribute target.
  ! For a noncontiguous section, such as x(1:2, :), stk_call returns STK_POOL_ARGUMENTS.
  interface stk_view
    module procedure view_1, view_2, view_3, view_4, view_5
  end interface

  interface
    integer(c_int) function c_new(budget, pool) bind(C, name='stk_pool_new')
      import
      integer(c_int64_t), value :: budget
      type(c_ptr), intent(out) :: pool
    end function
    subroutine c_free(pool) bind(C, name='stk_pool_free')
      import
      type(c_ptr), value :: pool
    end subroutine
    integer(c_int) function c_add(pool, name, path) bind(C, name='stk_pool_add')
      import
      type(c_ptr), value :: pool
      character(c_char), intent(in) :: name(*), path(*)
    end function
    integer(c_int) function c_remove(pool, name) bind(C, name='stk_pool_remove')
      import
      type(c_ptr), value :: pool
      character(c_char), intent(in) :: name(*)
    end function
    integer(c_int) function c_prefetch(pool, names, number_of_names) &
        bind(C, name='stk_pool_prefetch')
      import
      type(c_ptr), value :: pool
      type(c_ptr), intent(in) :: names(*)
      integer(c_int), value :: number_of_names
    end function
    integer(c_int) function c_sizes(pool, name, function, samples, inputs, number_of_inputs, &
        outputs, number_of_outputs) bind(C, name='stk_pool_check')
      import
      type(c_ptr), value :: pool
      character(c_char), intent(in) :: name(*), function(*)
      integer(c_int64_t), value :: samples
      integer(c_int64_t), intent(in) :: inputs(*), outputs(*)
      integer(c_int), value :: number_of_inputs, number_of_outputs
    end function
    integer(c_int) function c_call(pool, name, function, samples, inputs, number_of_inputs, &
        outputs, number_of_outputs, sample_status) bind(C, name='stk_pool_call')
      import
      type(c_ptr), value :: pool
      character(c_char), intent(in) :: name(*), function(*)
      integer(c_int64_t), value :: samples
      type(c_ptr), intent(in) :: inputs(*), outputs(*)
      integer(c_int), value :: number_of_inputs, number_of_outputs
      type(c_ptr), value :: sample_status
    end function
    function c_about(pool, name) bind(C, name='stk_pool_about') result(text)
      import
      type(c_ptr), value :: pool
      character(c_char), intent(in) :: name(*)
      type(c_ptr) :: text
    end function
    subroutine c_statistics(pool, counts) bind(C, name='stk_pool_statistics')
      import
      type(c_ptr), value :: pool
      type(stk_counts), intent(out) :: counts
    end subroutine
    function c_error() bind(C, name='stk_pool_error') result(text)
      import
      type(c_ptr) :: text
    end function
    integer(c_size_t) function c_strlen(text) bind(C, name='strlen')
      import
      type(c_ptr), value :: text
    end function
  end interface

contains

  ! Create a pool with a budget of bytes for the weights in memory.
  integer(c_int) function stk_new(budget, pool) result(status)
    integer(c_int64_t), intent(in) :: budget
    type(stk_pool), intent(out) :: pool
    status = c_new(budget, pool%handle)
  end function

  subroutine stk_free(pool)
    type(stk_pool), intent(inout) :: pool
    call c_free(pool%handle)
    pool%handle = c_null_ptr
  end subroutine

  ! Add a surrogate; its weights are read when it is first called.
  integer(c_int) function stk_add(pool, name, path) result(status)
    type(stk_pool), intent(in) :: pool
    character(*), intent(in) :: name, path
    status = c_add(pool%handle, text(name), text(path))
  end function

  ! Remove a surrogate after calls in progress have ended.
  integer(c_int) function stk_remove(pool, name) result(status)
    type(stk_pool), intent(in) :: pool
    character(*), intent(in) :: name
    status = c_remove(pool%handle, text(name))
  end function

  ! Read surrogates in advance, in the order of future calls; no names: forget those not read yet.
  integer(c_int) function stk_prefetch(pool, names) result(status)
    type(stk_pool), intent(in) :: pool
    character(*), intent(in) :: names(:)
    character(c_char), target :: letters(len(names) + 1, size(names))
    type(c_ptr) :: pointers(size(names))
    integer :: j, k
    letters = c_null_char
    do k = 1, size(names)
      do j = 1, len_trim(names(k))
        letters(j, k) = names(k)(j:j)
      end do
      pointers(k) = c_loc(letters(1, k))
    end do
    status = c_prefetch(pool%handle, pointers, size(names, kind=c_int))
  end function

  ! Call a function of a surrogate ("" if there is only one). Returns STK_POOL_ARGUMENTS without
  ! computing anything if arrays have a wrong number of elements.
  integer(c_int) function stk_call(pool, name, function, samples, inputs, outputs, sample_status) &
      result(status)
    type(stk_pool), intent(in) :: pool
    character(*), intent(in) :: name, function
    integer(c_int64_t), intent(in) :: samples
    type(stk_array), intent(in) :: inputs(:), outputs(:)
    integer(c_int32_t), contiguous, target, intent(out), optional :: sample_status(:)
    type(c_ptr) :: statuses
    status = c_sizes(pool%handle, text(name), text(function), samples, inputs%numbers, &
        size(inputs, kind=c_int), outputs%numbers, size(outputs, kind=c_int))
    if (status /= 0) return
    statuses = c_null_ptr
    if (present(sample_status)) then
      status = STK_POOL_ARGUMENTS
      if (size(sample_status, kind=c_int64_t) < samples) return
      if (samples > 0) statuses = c_loc(sample_status)
    end if
    status = c_call(pool%handle, text(name), text(function), samples, inputs%values, &
        size(inputs, kind=c_int), outputs%values, size(outputs, kind=c_int), statuses)
  end function

  ! JSON description of a surrogate, with shapes in C order; empty if unknown.
  function stk_about(pool, name) result(found)
    type(stk_pool), intent(in) :: pool
    character(*), intent(in) :: name
    character(:), allocatable :: found
    found = string(c_about(pool%handle, text(name)))
  end function

  function stk_statistics(pool) result(counts)
    type(stk_pool), intent(in) :: pool
    type(stk_counts) :: counts
    call c_statistics(pool%handle, counts)
  end function

  ! Message of the last call of this thread that returned 16 or more.
  function stk_error() result(found)
    character(:), allocatable :: found
    found = string(c_error())
  end function

  function view_1(x) result(made)
    real(c_float), target, intent(in) :: x(:)
    type(stk_array) :: made
    if (is_contiguous(x)) made = stk_array(c_loc(x), size(x, kind=c_int64_t))
  end function

  function view_2(x) result(made)
    real(c_float), target, intent(in) :: x(:, :)
    type(stk_array) :: made
    if (is_contiguous(x)) made = stk_array(c_loc(x), size(x, kind=c_int64_t))
  end function

  function view_3(x) result(made)
    real(c_float), target, intent(in) :: x(:, :, :)
    type(stk_array) :: made
    if (is_contiguous(x)) made = stk_array(c_loc(x), size(x, kind=c_int64_t))
  end function

  function view_4(x) result(made)
    real(c_float), target, intent(in) :: x(:, :, :, :)
    type(stk_array) :: made
    if (is_contiguous(x)) made = stk_array(c_loc(x), size(x, kind=c_int64_t))
  end function

  function view_5(x) result(made)
    real(c_float), target, intent(in) :: x(:, :, :, :, :)
    type(stk_array) :: made
    if (is_contiguous(x)) made = stk_array(c_loc(x), size(x, kind=c_int64_t))
  end function

  ! A Fortran string as a C string, without trailing blanks.
  pure function text(given) result(made)
    character(*), intent(in) :: given
    character(len_trim(given) + 1, kind=c_char) :: made
    made = trim(given) // c_null_char
  end function

  ! A C string as a Fortran string; empty for a null pointer.
  function string(given) result(made)
    type(c_ptr), intent(in) :: given
    character(:), allocatable :: made
    character(kind=c_char), pointer :: letters(:)
    integer :: k
    made = ''
    if (.not. c_associated(given)) return
    call c_f_pointer(given, letters, [c_strlen(given)])
    made = repeat(' ', size(letters))
    do k = 1, size(letters)
      made(k:k) = letters(k)
    end do
  end function
end module scitoolkit_pool
