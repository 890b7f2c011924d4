! Like mpi-peers.c, with two ranks, through mpi and mpi_f08.
module clock
  use mpi
  implicit none
  character(16) :: names(32) = ''
  integer :: calls(32) = 0
  double precision :: times(32) = 0, begin
contains
  subroutine start
    begin = MPI_Wtime()
  end subroutine

  ! Adds the time since the start to the call and its ranks.
  subroutine done(name)
    character(*), intent(in) :: name
    double precision :: now
    integer :: i
    now = MPI_Wtime()
    i = 1
    do while (names(i) /= '' .and. names(i) /= name)
      i = i + 1
    end do
    names(i) = name
    calls(i) = calls(i) + 1
    times(i) = times(i) + now - begin
  end subroutine

  ! The next step: rank 1 sends a message after 20 ms.
  subroutine step(rank, comm)
    integer, intent(in) :: rank, comm
    integer :: e, value = 5
    double precision :: until
    call mpi_barrier(MPI_COMM_WORLD, e)
    if (rank /= 1) return
    until = MPI_Wtime() + 0.02d0
    do while (MPI_Wtime() < until)
    end do
    ! Rank 0 of the world is rank 1 in the other communicator.
    call mpi_send(value, 1, MPI_INTEGER, merge(0, 1, comm == MPI_COMM_WORLD), 7, comm, e)
  end subroutine
end module

subroutine old(rank, reversed)
  use mpi
  use clock
  implicit none
  integer, intent(in) :: rank, reversed
  integer :: e, value, other = 3, status(MPI_STATUS_SIZE), requests(3), statuses(MPI_STATUS_SIZE, 3)
  call step(rank, MPI_COMM_WORLD)
  if (rank == 0) then
    call start
    call mpi_recv(value, 1, MPI_INTEGER, 1, 7, MPI_COMM_WORLD, status, e)
    call done('MPI_Recv 1')
  end if
  call step(rank, MPI_COMM_WORLD)
  if (rank == 0) then
    call start
    call mpi_recv(value, 1, MPI_INTEGER, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, status, e)
    call done('MPI_Recv 1')
  end if
  call step(rank, MPI_COMM_WORLD)
  if (rank == 0) then
    call start
    call mpi_recv(value, 1, MPI_INTEGER, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE, e)
    call done('MPI_Recv ?')
  end if
  call step(rank, MPI_COMM_WORLD)
  if (rank == 0) then
    call start
    call mpi_sendrecv(other, 1, MPI_INTEGER, 1, 8, value, 1, MPI_INTEGER, 1, 7, MPI_COMM_WORLD, status, e)
    call done('MPI_Sendrecv 1')
  else
    call mpi_recv(value, 1, MPI_INTEGER, 0, 8, MPI_COMM_WORLD, status, e)
  end if
  call step(rank, reversed)
  if (rank == 0) then
    call start
    call mpi_recv(value, 1, MPI_INTEGER, 0, 7, reversed, MPI_STATUS_IGNORE, e)
    call done('MPI_Recv 1')
  end if
  call step(rank, MPI_COMM_WORLD)
  if (rank == 0) then
    call mpi_irecv(value, 1, MPI_INTEGER, 1, 7, MPI_COMM_WORLD, requests(1), e)
    call start
    call mpi_wait(requests(1), MPI_STATUS_IGNORE, e)
    call done('MPI_Wait 1')
  end if
  call step(rank, reversed)
  if (rank == 0) then
    call mpi_irecv(value, 1, MPI_INTEGER, MPI_ANY_SOURCE, 7, reversed, requests(1), e)
    call start
    call mpi_wait(requests(1), status, e)
    call done('MPI_Wait 1')
  end if
  call step(rank, MPI_COMM_WORLD)
  if (rank == 0) then
    call mpi_irecv(value, 1, MPI_INTEGER, 1, 7, MPI_COMM_WORLD, requests(1), e)
    call mpi_irecv(value, 1, MPI_INTEGER, MPI_PROC_NULL, 7, MPI_COMM_WORLD, requests(2), e)
    requests(3) = MPI_REQUEST_NULL
    call start
    call mpi_waitall(3, requests, statuses, e)
    call done('MPI_Waitall 1')
  end if
end subroutine

subroutine new(rank, reversed)
  use mpi_f08
  use clock, only: start, done, step
  implicit none
  integer, intent(in) :: rank, reversed
  integer :: value
  type(MPI_Comm) :: other
  type(MPI_Status) :: status
  type(MPI_Request) :: requests(2)
  other%mpi_val = reversed
  call step(rank, MPI_COMM_WORLD%mpi_val)
  if (rank == 0) then
    call start
    call MPI_Recv(value, 1, MPI_INTEGER, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, status)
    call done('MPI_Recv 1')
  end if
  call step(rank, MPI_COMM_WORLD%mpi_val)
  if (rank == 0) then
    call start
    call MPI_Recv(value, 1, MPI_INTEGER, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    call done('MPI_Recv ?')
  end if
  call step(rank, reversed)
  if (rank == 0) then
    call MPI_Irecv(value, 1, MPI_INTEGER, 0, 7, other, requests(1))
    call MPI_Irecv(value, 1, MPI_INTEGER, MPI_PROC_NULL, 7, other, requests(2))
    call start
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
    call done('MPI_Waitall 1')
  end if
end subroutine

program peers
  use mpi
  use clock
  implicit none
  integer :: e, rank, reversed, i
  call mpi_init(e)
  call mpi_comm_rank(MPI_COMM_WORLD, rank, e)
  call mpi_comm_split(MPI_COMM_WORLD, 0, -rank, reversed, e)
  do i = 1, 5
    call old(rank, reversed)
    call new(rank, reversed)
  end do
  do i = 1, 32
    if (names(i) /= '') print '(a, 1x, i0, 1x, i0)', trim(names(i)), calls(i), nint(times(i) * 1d9, 8)
  end do
  call mpi_finalize(e)
end program
