//! The helpers: operations that a host performs for the code that it runs, by name.
//!
//! The kernel answers most of them by a BPF helper of its own, a process from its own memory. The
//! memory that a helper reads and writes through its arguments is part of its contract here, so
//! that the
//! interpreter of tests and each host agree.

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HelperSignature {
    /// Number of arguments, at most 5.
    pub args: usize,
    /// Whether it has a result.
    pub result: bool,
}

macro_rules! helpers {
    ($($(#[$m:meta])* $v:ident = $name:literal, $args:literal, $result:literal;)*) => {
        crate::op::named! {
            /// A helper by name.
            Helper { $($(#[$m])* $v = $name,)* }
        }

        impl Helper {
            /// The helper's row.
            pub fn info(self) -> HelperSignature {
                match self { $(Helper::$v => HelperSignature { args: $args, result: $result }),* }
            }
        }
    };
}

helpers! {
    /// `(map, key)`: the address of the element, or 0.
    MapLookup = "map_lookup", 2, true;
    /// `(map, key, value, flags)`: 0, or a negative errno.
    MapUpdate = "map_update", 4, true;
    /// `(map, key)`: 0, or a negative errno.
    MapDelete = "map_delete", 2, true;
    /// Nanoseconds of the monotonic clock.
    TimeNs = "time_ns", 0, true;
    /// The number of this processor.
    Cpu = "cpu", 0, true;
    /// Process id (upper half) and thread id (lower half) of the current task.
    PidTgid = "pid_tgid", 0, true;
    /// Group id (upper half) and user id (lower half) of the current task.
    UidGid = "uid_gid", 0, true;
    /// The address of the current task's description.
    Task = "task", 0, true;
    /// The same as a number, from which code only reads by `read`.
    TaskAddress = "task_address", 0, true;
    /// `(task)`: the address of the registers with which a task's program entered the kernel.
    Registers = "registers", 1, true;
    /// `(map, function, context, 0)`: calls `function(map, key, value, context)` for each element of the
    /// map, until it returns something other than 0; the number of calls, or a negative errno. The
    /// function may remove its element.
    ForEach = "for_each", 4, true;
    /// `(map, task, value, flags)`: the address of what a task has in a map of tasks, or 0.
    TaskStorage = "task_storage", 4, true;
    /// `(map, processor)`: the count of a processor's event, or a negative errno as a number.
    EventCount = "event_count", 2, true;
    /// `(to, size, from)`: copies bytes of this host's memory; 0, or a negative errno if they cannot
    /// be read (the bytes at `to` are then zero).
    Read = "read", 3, true;
    /// `(to, size, from)`: copies bytes of the observed program's memory.
    ReadUser = "read_user", 3, true;
    /// `(to, size, from)`: copies a text up to its NUL, at most `size` bytes with the NUL, which is
    /// always written; the number of bytes with the NUL, or a negative errno. Bytes behind it stay.
    ReadText = "read_text", 3, true;
    /// `(to, size, from)`: as `read_text`, from the observed program's memory.
    ReadUserText = "read_user_text", 3, true;
    /// `(to, size, format, values, bytes)`: writes a text by a format of the kernel's `bpf_snprintf`, with
    /// `bytes` of values; the number of bytes of the whole text with the NUL, or a negative errno.
    Format = "format", 5, true;
    /// `(text, size, base, to)`: reads a number without a sign from the beginning of a text, in front of
    /// which there may be spaces; the number of characters, or a negative errno.
    ParseNumber = "parse_number", 4, true;
    /// `(ring, data, size, flags)`: 0, or a negative errno if the record was lost.
    Output = "output", 4, true;
    /// `(ring, 0)`: the number of bytes in the ring that were not consumed yet.
    Waiting = "waiting", 2, true;
    /// `(holder)`: 0; gives the processor to others, while `holder` has the lock that this thread waits for. Only in
    /// processes: a handler of the kernel is not switched out while it holds a lock.
    Yield = "yield", 1, true;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_arguments_fit() {
        for h in Helper::ALL {
            assert_eq!(Helper::by_name(h.name()), Some(*h));
            assert!(h.info().args <= 5);
        }
    }
}
