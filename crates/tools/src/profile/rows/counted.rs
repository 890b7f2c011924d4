//! Samples of events that are only counted.

use spile_profile::model::EventCount;

use super::builder::ProfileBuilder;
use super::locations::{ends_in_kernel, frame};
use crate::rows::Fields;

impl ProfileBuilder {
    /// Takes the samples of an event in one place.
    pub(super) fn counted_events(&mut self, f: &mut Fields<'_>) -> Option<()> {
        let owner = self.owner(f)?;
        let (period, samples): (u64, u64) = (f.integer()?, f.integer()?);
        let event = self.counted.iter().find(|event| event.period == period)?;
        let event = event.event.clone();
        let mut kernel: Vec<_> = f.string()?.lines().map(frame).collect();
        ends_in_kernel(&mut kernel);
        let frames = self.mixed_frames(f)?;
        let kernel = self.shared.stack(kernel);
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
