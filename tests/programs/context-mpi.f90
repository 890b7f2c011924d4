! MPI from Fortran, through mpi and mpi_f08.
subroutine old
  use mpi
  integer :: e, rank, ranks, total
  call mpi_comm_rank(MPI_COMM_WORLD, rank, e)
  call mpi_comm_size(MPI_COMM_WORLD, ranks, e)
  call mpi_allreduce(rank, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, e)
  if (total /= ranks * (ranks - 1) / 2) stop 3
end subroutine

program context
  use mpi_f08
  integer :: rank, ranks, total
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  call MPI_Reduce(rank, total, 1, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD)
  if (rank == 0 .and. total /= ranks * (ranks - 1) / 2) stop 4
  call old
  call MPI_Finalize()
  if (rank == 0) print '(i0, a)', ranks, ' ranks'
end program
