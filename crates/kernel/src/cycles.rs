//! The processor's counter of cycles, which programs read by an instruction.

/// The counter; 0 if programs cannot read one.
#[must_use]
pub fn cycles() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction is part of the base instruction set and touches no memory.
    return unsafe { std::arch::x86_64::_rdtsc() };
    #[cfg(target_arch = "aarch64")]
    {
        let ticks: u64;
        // SAFETY: reading the virtual counter is allowed to programs on Linux and touches no
        // memory.
        unsafe { std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
        return ticks;
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return 0;
}
