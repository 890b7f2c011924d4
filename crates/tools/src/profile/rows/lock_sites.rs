//! Where the program made locks, conditions and semaphores: names for those that are in no variable.

use std::collections::BTreeMap;

use spile_profile::model::Frame;

/// The size of the largest object with a futex in it, a lock for readers and writers, in bytes.
const LARGEST: u64 = 56;

/// The places where futexes were made, by process and address of the object. An address that is used again belongs to the
/// last object.
#[derive(Debug, Default)]
pub(super) struct LockSites(BTreeMap<(u32, u64), String>);

impl LockSites {
    /// Adds an object that was made with this stack.
    pub(super) fn learn(&mut self, pid: u32, address: u64, frames: &[Frame]) {
        let Some(maker) = frames.iter().find(|frame| !frame.in_library()) else {
            return;
        };
        let place = format!("made in {}", maker.function_and_line());
        self.0.insert((pid, address), place);
    }

    /// Where the object with this futex was made, as in "made in open_queue (queue.c:31)".
    pub(super) fn site(&self, pid: u32, futex: u64) -> Option<&String> {
        let (&(process, address), site) = self.0.range(..=(pid, futex)).next_back()?;
        (process == pid && futex - address < LARGEST).then_some(site)
    }
}

#[cfg(test)]
mod tests {
    use spile_profile::model::StackFrame;

    use super::*;

    #[test]
    fn the_object_with_a_futex_is_the_one_around_it() {
        let frame = |function: &str, module: &str, file: Option<&str>| {
            Frame::new(StackFrame {
                function: function.to_owned(),
                module: Some(module.to_owned()),
                file: file.map(str::to_owned),
                line: file.map(|_| 31),
            })
        };
        let mut sites = LockSites::default();
        let stack = [
            frame("__pthread_mutex_init", "libc.so.6", None),
            frame("open_queue", "server", None),
        ];
        sites.learn(7, 4096, &stack);
        let lined = frame("open_queue", "server", Some("src/queue.c"));
        sites.learn(7, 8192, &[lined]);
        sites.learn(7, 9000, &stack[..1]);
        let site = |pid, futex| sites.site(pid, futex).map(String::as_str);
        assert_eq!(site(7, 4136), Some("made in open_queue"));
        assert_eq!(site(7, 8192), Some("made in open_queue (queue.c:31)"));
        for (pid, futex) in [(7, 4095), (7, 4152), (8, 8192), (7, 9000)] {
            assert_eq!(site(pid, futex), None, "{pid} {futex}");
        }
    }
}
