! Arrays by descriptor, of assumed shape and size, strings, derived types.
!: $n ~ n
!: $total ~ total
!: $fixed[1] ~ fixed(2)
!: $part[1] ~ part(2)
!: $part[$n-1] ~ part(5)
!: $every[2] ~ every(3)
!: $grid[2][1] ~ grid(3,2)
!: $grid[0][1] ~ grid(1,2)
!: $plain[2][1] ~ plain(3,2)
!: $part$ ~ "[22, 33, 44, 55, 66]"
!: $every$ ~ "[11, 33, 55, 77]"
!: $shaped[1][1] ~ shaped(2,2)
!: $assumed[1][1] ~ assumed(2,2)
!: $local[1][2] ~ local(2,3)
!: $point->x ~ point%x
!: $point->y ~ point%y
!: $flag ~ flag
!: $byte ~ byte
!: $given[0] ~ given(1)
!: $title[1] ~ "32"
!: $title$ ~ "a title "
!: $ratio$ ~ ratio
!: $z->imaginary$ ~ "-2.5"
!: $ratios[1]$ ~ ratios(2)
module shapes
  use iso_fortran_env, only: error_unit
  implicit none
  type place
    integer :: x
    integer(8) :: y
  end type
contains
  subroutine look(n, fixed, part, every, grid, point, given, total, shaped, assumed, m)
    integer, intent(in) :: n, m
    integer, intent(in) :: shaped(m, n), assumed(m, *)
    integer, intent(in) :: fixed(3), part(:), every(:), given(*)
    integer, intent(in) :: grid(:, :)
    type(place), intent(in) :: point
    integer(8), intent(inout) :: total
    logical :: flag
    character(len=8) :: title
    real(8) :: ratio
    real(4) :: ratios(2)
    complex(8) :: z
    integer :: plain(3, 2)
    integer(1) :: byte
    integer :: local(m + 1, n)
    integer :: i, j
    flag = n > 3
    plain = grid * 10
    byte = int(-n, 1)
    title = 'a title'
    ratio = n / 3d0
    ratios = real(n) / 8
    z = cmplx(n, -2.5, 8)
    do i = 1, n
      local(:, i) = [(10*i + j, j=0, m)]
    end do
    write (error_unit, *) title, ratio, z, ratios
    total = total + n ! here
    total = total + sum(fixed) + sum(part) + sum(every) + sum(grid) + point%x + point%y + byte + given(2) + sum(plain)
    if (flag) total = total + 1
    write (error_unit, *) title, ratio, z, ratios, local, shaped, assumed(1:m, 2)
    write (*, *) total
  end subroutine
end module

program main
  use shapes
  implicit none
  integer, allocatable :: numbers(:), grid(:, :)
  integer :: fixed(3), i
  integer(8) :: total
  type(place) :: point
  allocate (numbers(8), grid(3, 2))
  numbers = [(i*11, i=1, 8)]
  grid = reshape([1, 2, 3, 4, 5, 6], [3, 2])
  fixed = [7, 8, 9]
  point = place(4, 5000000000_8)
  total = 1
  call look(5, fixed, numbers(2:6), numbers(1:8:2), grid, point, numbers, total, reshape([(i, i=1, 10)], [2, 5]), numbers, 2)
end program
