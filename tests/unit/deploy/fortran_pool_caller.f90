! Calls surrogates of a folder by name under a small budget; prints answers, statuses, and what is
! refused. Arrays are (level, sample): the reverse of the description's (sample, level).
program caller
  use, intrinsic :: iso_c_binding
  use scitoolkit_pool
  implicit none
  integer, parameter :: models = 6, levels = 7, results = 5, samples = 3
  type(stk_pool) :: pool
  type(stk_counts) :: counts
  real(c_float), target :: x(levels, samples), y(results, samples), small(results - 1, samples)
  real(c_float), target :: box(2, 2, 2, 2, 2)
  integer(c_int32_t), target :: statuses(samples)
  character(4096) :: folder, budget
  character(8) :: name  ! longer than the names: blanks at the end do not count
  integer(c_int64_t) :: bytes
  integer :: k, i, j
  call get_command_argument(1, folder)
  call get_command_argument(2, budget)
  read (budget, *) bytes
  call expect(stk_new(0_c_int64_t, pool), STK_POOL_ARGUMENTS)
  call expect(stk_new(bytes, pool), 0)
  do k = 0, models - 1
    write (name, '(a, i1)') 'm', k
    call expect(stk_add(pool, name, trim(folder) // '/' // trim(name) // '.weights'), 0)
  end do
  call expect(stk_prefetch(pool, [character(4) :: 'm5', 'm9']), STK_POOL_UNKNOWN)
  call expect(stk_prefetch(pool, [character(4) :: 'm5', 'm4']), 0)
  x = reshape([((0.125 * i - 0.25 * j, i = 1, levels), j = 1, samples)], shape(x))
  do k = 0, models - 1
    write (name, '(a, i1)') 'm', k
    call expect(stk_call(pool, name, '', int(samples, c_int64_t), [stk_view(x)], [stk_view(y)], &
        statuses), 0)
    if (any(statuses /= 0)) stop 2
    print '(15(es16.9, 1x))', y
  end do
  x(2, 2) = 100
  call expect(stk_call(pool, 'm1', '', int(samples, c_int64_t), [stk_view(x)], [stk_view(y)], &
      statuses), 1)
  if (any(statuses /= [0, 1, 0])) stop 3
  call expect(stk_add(pool, 'm0', trim(folder) // '/m0.weights'), STK_POOL_TAKEN)
  call expect(stk_add(pool, 'new', 'no/such.weights'), STK_POOL_FILE)
  call expect(stk_call(pool, 'm9', '', 1_c_int64_t, [stk_view(x)], [stk_view(y)]), STK_POOL_UNKNOWN)
  call expect(stk_call(pool, 'm0', '', int(samples, c_int64_t), [stk_view(x)], [stk_view(small)]), &
      STK_POOL_ARGUMENTS)
  print '(a)', stk_error()
  call expect(stk_call(pool, 'm0', '', int(samples, c_int64_t), [stk_view(x)], [stk_view(y)], &
      statuses(1:2)), STK_POOL_ARGUMENTS)
  call expect(stk_call(pool, 'm0', '', 2_c_int64_t, [stk_view(x)], [stk_view(y)]), &
      STK_POOL_ARGUMENTS)
  call expect(stk_call(pool, 'm0', '', 1_c_int64_t, [stk_view(box)], [stk_view(y)]), &
      STK_POOL_ARGUMENTS)
  call expect(stk_call(pool, 'm0', '', 2_c_int64_t, [stk_view(x(:, ::2))], [stk_view(y(:, 2:))]), &
      STK_POOL_ARGUMENTS)
  if (index(stk_error(), 'has gaps') == 0) stop 7
  if (index(stk_about(pool, 'm1'), '"level"') == 0 .or. stk_about(pool, 'm9') /= '') stop 4
  call expect(stk_remove(pool, 'm0'), 0)
  counts = stk_statistics(pool)
  if (counts%resident_bytes > counts%held_bytes) stop 8
  if (counts%held_bytes > counts%budget_bytes .or. counts%models /= models - 1) stop 5
  if (counts%evictions == 0) stop 6
  call stk_free(pool)
contains
  subroutine expect(found, wanted)
    integer(c_int), intent(in) :: found
    integer, intent(in) :: wanted
    if (found == wanted) return
    print '(a, i0, a, i0, a, a)', 'status ', found, ', not ', wanted, ': ', stk_error()
    stop 1
  end subroutine
end program
