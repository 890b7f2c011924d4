//! Threads that hardly ran in a recording of what already existed: what each waited for at the beginning and at the end.

use crate::model::{BothEnds, Profile, StackFrame, Thread, Wait, thread_title};
use crate::sleeping_threads::on_a_cpu;

/// How a thread spent its time between the ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stillness {
    /// In one wait.
    OneWait,
    /// It had other calls meanwhile, and was back in the same place.
    SamePlace,
    /// In different places at the ends, or it ran at one of them.
    Moved,
}

impl Stillness {
    /// Its name in JSON.
    pub fn key(self) -> &'static str {
        match self {
            Stillness::OneWait => "one_wait",
            Stillness::SamePlace => "same_place",
            Stillness::Moved => "moved",
        }
    }
}

/// A thread that hardly ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuietThread {
    /// Its number with its name, and its recording among several.
    pub title: String,
    /// Its id.
    pub tid: u32,
    /// How it spent its time.
    pub stillness: Stillness,
    /// Number of its calls that ended.
    pub calls: u64,
    /// What it waited for at the ends.
    pub ends: BothEnds,
}

/// Maximum share, in hundredths, that a quiet thread was on a processor.
const QUIET: u128 = 1;

/// The threads of a profile that hardly ran, in the order of their ids.
pub(crate) fn quiet_threads(profile: &Profile, several: bool) -> Vec<QuietThread> {
    let data = &profile.data;
    let quiet = |ends: &BothEnds| {
        let thread = data.threads.iter().find(|t| t.tid == ends.tid)?;
        let wall = thread.wall(data.at_ns);
        if u128::from(on_a_cpu(thread)) * 100 > u128::from(wall) * QUIET {
            return None;
        }
        let title = thread_title(ends.tid, Some(thread));
        let calls = data.calls.iter().filter(|c| c.tid == ends.tid);
        Some(QuietThread {
            title: match several {
                true => format!("{}: {title}", profile.title()),
                false => title,
            },
            tid: ends.tid,
            stillness: stillness(profile, thread, ends),
            calls: calls.fold(0, |sum, c| sum.saturating_add(c.count)),
            ends: ends.clone(),
        })
    };
    let mut threads: Vec<QuietThread> = data.ends.iter().filter_map(quiet).collect();
    threads.sort_by_key(|t| t.tid);
    threads
}

fn stillness(profile: &Profile, thread: &Thread, ends: &BothEnds) -> Stillness {
    let calls = profile.data.calls.iter();
    let mut open = calls.filter(|c| c.tid == thread.tid && c.unfinished.is_some());
    let wall = thread.wall(profile.data.at_ns);
    if wall > 0 && open.any(|c| c.unfinished.is_some_and(|ns| ns >= wall)) {
        return Stillness::OneWait;
    }
    match &ends.end {
        Some(end) if ends.begin.as_ref() == Some(end) => Stillness::SamePlace,
        _ => Stillness::Moved,
    }
}

impl QuietThread {
    /// What it did, as the end of a sentence.
    pub fn sentence(&self) -> String {
        let place =
            |wait: &Option<Wait>| wait.as_ref().map_or("on a processor".into(), Wait::place);
        let times = match self.calls {
            1 => "1 call".to_owned(),
            n => format!("{n} calls"),
        };
        match self.stillness {
            Stillness::OneWait => format!("waited the whole time in {}", place(&self.ends.end)),
            Stillness::SamePlace => {
                format!(
                    "back in the same place after {times}: {}",
                    place(&self.ends.end)
                )
            }
            Stillness::Moved => format!(
                "moved, with {times}: at the beginning {}; at the end {}",
                place(&self.ends.begin),
                place(&self.ends.end)
            ),
        }
    }
}

impl Wait {
    /// The innermost function of the program with its line, and the one that it called; and what the thread waits
    /// for.
    pub fn place(&self) -> String {
        let own = self.frames.iter().position(|f| !f.in_library());
        let own = own.unwrap_or(self.frames.len().saturating_sub(1));
        let shown = self.frames.iter().take(own + 1).skip(own.saturating_sub(1));
        let mut names: Vec<String> = shown.map(|f| name(f)).collect();
        if names.len() < 2 {
            names.insert(0, self.call.clone());
        }
        let object = self.object.as_ref();
        let object = object.map_or(String::new(), |object| format!(", for `{object}`"));
        names.join(" < ") + &object
    }
}

/// The function of a frame, with its line.
fn name(frame: &StackFrame) -> String {
    if frame.file.is_some() && frame.line.is_some() && !frame.in_library() {
        return frame.function_and_line();
    }
    // The library's functions have other names inside.
    frame.function.trim_start_matches('_').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{CallTotals, Frame, TimeParts};

    fn wait(function: &str) -> Option<Wait> {
        let frame = |function: &str, module: &str, line| {
            Frame::new(StackFrame {
                function: function.to_owned(),
                module: Some(module.to_owned()),
                file: Some("/src/x.c".to_owned()),
                line: Some(line),
            })
        };
        Some(Wait {
            call: "futex".to_owned(),
            object: Some("a".to_owned()),
            frames: vec![
                frame("futex_wait", "libc.so.6", 1),
                frame("__pthread_mutex_lock", "libc.so.6", 1),
                frame(function, "app", 12),
                frame("main", "app", 20),
            ],
        })
    }

    #[test]
    fn threads_that_hardly_ran_say_what_they_waited_for() {
        let mut profile = Profile::default();
        profile.data.at_ns = 1000;
        let ends = [
            (1, wait("update"), wait("update"), 1000),
            (2, wait("update"), wait("update"), 400),
            (3, wait("update"), wait("other"), 400),
            (4, None, wait("update"), 400),
            (5, wait("update"), wait("update"), 1000),
        ];
        for (tid, begin, end, unfinished) in ends {
            profile.data.ends.push(BothEnds { tid, begin, end });
            profile.data.calls.push(CallTotals {
                tid,
                call: "futex".to_owned(),
                count: u64::from(tid - 1),
                unfinished: Some(unfinished),
                ..CallTotals::default()
            });
            let user = if tid == 5 { 500 } else { 1 };
            profile.data.threads.push(Thread {
                tid,
                name: "app".to_owned(),
                parts: TimeParts {
                    user,
                    ..TimeParts::default()
                },
                ..Thread::default()
            });
        }
        let quiet = quiet_threads(&profile, false);
        let said = quiet
            .iter()
            .map(|t| format!("{} {}", t.title, t.sentence()));
        let update = "pthread_mutex_lock < update (x.c:12), for `a`";
        let other = "pthread_mutex_lock < other (x.c:12), for `a`";
        assert_eq!(
            said.collect::<Vec<_>>(),
            [
                format!("1 app waited the whole time in {update}"),
                format!("2 app back in the same place after 1 call: {update}"),
                format!("3 app moved, with 2 calls: at the beginning {update}; at the end {other}"),
                format!(
                    "4 app moved, with 3 calls: at the beginning on a processor; at the end {update}"
                ),
            ]
        );
    }
}
