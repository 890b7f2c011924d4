! Procedures of Fortran inside procedures.
module sums
contains
  subroutine work(n, total)
    integer, intent(in) :: n
    integer, intent(out) :: total
    integer :: i
    total = 0
    do i = 1, n
      call add(i)
    end do
  contains
    subroutine add(k)
      integer, intent(in) :: k
      total = total + k
      if (total < 0) print *, k
    end subroutine add
  end subroutine work
end module sums

program inside
  use sums
  integer :: t, base
  base = 5
  call work(7, t)
  call show(t)
  call show(t + 1)
contains
  subroutine show(v)
    integer, intent(in) :: v
    print *, v + base
  end subroutine show
end program inside
