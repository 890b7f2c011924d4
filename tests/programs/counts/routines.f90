! Modules, internal procedures, recursion, pure and elemental procedures of Fortran.
module counted
  integer(8) :: n_add = 0, n_inner = 0, n_fib = 0, n_show = 0, n_small = 0, n_op = 0
  integer, volatile :: sink
  type pair
    integer :: a, b
  contains
    procedure :: total => pair_total
  end type
contains
  !: add = n_add
  integer function add(a, b)
    integer, intent(in) :: a, b
    n_add = n_add + 1 ! at n_add
    sink = a
    add = a + b
  end function
  !: fib = n_fib, recursion
  recursive integer function fib(n) result(r)
    integer, intent(in) :: n
    n_fib = n_fib + 1
    if (n < 2) then
      r = n
    else
      r = fib(n - 1) + fib(n - 2)
    end if
  end function
  !: small = n_small
  subroutine small(x)
    integer, intent(inout) :: x
    n_small = n_small + 1
    x = x + sink
  end subroutine
  !: pair_total = n_op
  integer function pair_total(self)
    class(pair), intent(in) :: self
    n_op = n_op + 1
    pair_total = self%a + self%b
  end function
  !: outer::inner = n_inner
  integer function outer(k)
    integer, intent(in) :: k
    integer :: i
    outer = 0
    do i = 1, k
      outer = outer + inner(i)
    end do
  contains
    integer function inner(i)
      integer, intent(in) :: i
      n_inner = n_inner + 1
      sink = i
      inner = i * k
    end function
  end function
end module

program main
  use counted
  integer :: i, x
  type(pair) :: p
  x = 0
  do i = 1, 9
    x = x + add(i, 3) + fib(i) + outer(i)
    call small(x)
    p = pair(i, x)
    x = x + p%total()
    call show(i)
  end do
  if (x == 1) print *, x
  print '(a,i0)', 'n_add ', n_add, 'n_inner ', n_inner, 'n_fib ', n_fib, 'n_show ', n_show, 'n_small ', n_small, 'n_op ', n_op
contains
  !: show = n_show
  subroutine show(i)
    integer, intent(in) :: i
    n_show = n_show + 1
    sink = i
  end subroutine
end program
