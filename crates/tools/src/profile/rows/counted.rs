//! Samples of events that are only counted.

use spile_profile::model::EventCount;

use super::builder::ProfileBuilder;
use super::locations::ends_in_kernel;
use crate::rows::Fields;

impl ProfileBuilder {
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
