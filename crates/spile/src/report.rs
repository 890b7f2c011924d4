//! The lines that `-v` prints about passes; messages and failures are those of `plain`.

use std::fmt;
use std::time::Instant;

pub(crate) use spile_plain::messages::{
    Failure, fail, print_stderr, print_stderr_lines, print_stderr_raw, print_stdout,
};

/// Times of passes, as `-v` prints them.
pub(crate) struct Stopwatch {
    verbose: [bool; 5],
    wall: Instant,
    cpu: (f64, f64),
}

impl Stopwatch {
    /// Starts; prints later only of the passes that `verbose` has.
    pub(crate) fn start(verbose: [bool; 5]) -> Stopwatch {
        let cpu = if verbose.contains(&true) {
            spile_kernel::process::own_cpu_ms()
        } else {
            (0.0, 0.0)
        };
        Stopwatch {
            verbose,
            wall: Instant::now(),
            cpu,
        }
    }

    /// Ends a pass: prints its summary and its time, and starts the next.
    pub(crate) fn pass(&mut self, number: u8, summary: impl fmt::Display) {
        if !self.verbose.contains(&true) {
            return;
        }
        let (user, sys) = spile_kernel::process::own_cpu_ms();
        if self.verbose[usize::from(number) - 1] {
            print_stderr(format_args!(
                "Pass {number}: {summary} in {:.1}usr/{:.1}sys/{:.1}real ms.\n",
                user - self.cpu.0,
                sys - self.cpu.1,
                self.wall.elapsed().as_secs_f64() * 1e3
            ));
        }
        *self = Stopwatch {
            verbose: self.verbose,
            wall: Instant::now(),
            cpu: (user, sys),
        };
    }
}
