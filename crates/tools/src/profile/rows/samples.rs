//! Samples of running threads, and of events that are only counted.

use spile_profile::model::{Activity, EventCount, Sample};

use super::builder::{ProfileBuilder, TimeOwner, is_own};
use super::locations::ends_in_kernel;
use crate::rows::Fields;

/// The activity by its number in the script. `in_kernel` tells whether the sample has a stack in the kernel.
fn activity(owner: TimeOwner, number: i64, in_kernel: bool) -> Activity {
    match number {
        // The calls of the region library count as the program.
        _ if is_own(owner.region) => Activity::User,
        -3 => Activity::Fault,
        -1 | 1.. => Activity::Call,
        // Before its first event a thread is in the program if it is not in the kernel.
        -2 if in_kernel => Activity::Call,
        _ => Activity::User,
    }
}

/// The lowest number of an activity in the script.
const LOWEST: i64 = -3;

impl ProfileBuilder {
    /// Samples of a running thread in one place.
    pub(super) fn sample(&mut self, f: &mut Fields<'_>) -> Option<()> {
        let owner = self.owner(f)?;
        let (number, call) = (f.integer::<i64>()?, f.string()?.into_owned());
        let count: u64 = f.integer()?;
        let mut kernel = self.lines.frames(&f.string()?, &mut self.shared);
        ends_in_kernel(&mut kernel);
        let frames = self.mixed_frames(f)?;
        let activity = activity(owner, number, !kernel.is_empty());
        if activity == Activity::User {
            // The end of an interrupt.
            kernel.clear();
        }
        let key = (owner.thread, owner.region, number, call.clone());
        *self.placed.entry(key).or_default() += count;
        self.add_sample(
            owner,
            Sample {
                activity,
                call,
                kernel,
                frames,
                count,
                ..Sample::default()
            },
        )
    }

    /// All samples of a thread in one activity, after those that have a place.
    pub(super) fn taken(&mut self, f: &mut Fields<'_>) -> Option<()> {
        let owner = self.owner(f)?;
        let (number, call) = (f.integer::<i64>()?, f.string()?.into_owned());
        let all: u64 = f.integer()?;
        let key = (owner.thread, owner.region, number, call);
        let count = all.saturating_sub(self.placed.get(&key).copied().unwrap_or(0));
        // Numbers below are those of counted events.
        if count == 0 || number < LOWEST {
            return Some(());
        }
        self.unplaced += count;
        self.add_sample(
            owner,
            Sample {
                activity: activity(owner, number, false),
                call: key.3,
                count,
                ..Sample::default()
            },
        )
    }

    /// Takes the samples of an event in one place.
    pub(super) fn counted_events(&mut self, f: &mut Fields<'_>) -> Option<()> {
        let owner = self.owner(f)?;
        let (period, samples): (u64, u64) = (f.integer()?, f.integer()?);
        let event = self.counted.iter().find(|event| event.period == period)?;
        let event = event.event.clone();
        let mut kernel = self.lines.frames(&f.string()?, &mut self.shared);
        ends_in_kernel(&mut kernel);
        let frames = self.mixed_frames(f)?;
        let (tid, context) = self.numbers(owner)?;
        self.snapshot.event_counts.push(EventCount {
            tid,
            context,
            event,
            kernel,
            frames,
            samples,
        });
        Some(())
    }
}
