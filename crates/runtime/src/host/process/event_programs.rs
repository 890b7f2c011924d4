//! The programs of events that a process does not see itself.

use spile_bpf::compiled::SampledEvent;
use spile_ir::TaskEvent;

/// The programs.
#[derive(Debug, Default)]
pub(super) struct EventPrograms {
    pub(super) sampled: Vec<(SampledEvent, String)>,
    pub(super) tasks: Vec<(TaskEvent, String)>,
}

impl EventPrograms {
    /// Adds a program that runs at these perf events.
    pub(super) fn sample(&mut self, events: &[SampledEvent], program: &str) {
        let events = events.iter().map(|event| (*event, program.to_owned()));
        self.sampled.extend(events);
    }

    /// Adds a program, if it runs at a step of tasks with one of these names. Returns whether it does.
    pub(super) fn step(&mut self, names: &[String], program: &str) -> bool {
        let steps = TaskEvent::ALL.into_iter();
        let steps: Vec<TaskEvent> = steps
            .filter(|step| names.iter().any(|name| name == step.name()))
            .collect();
        let added = steps.iter().map(|step| (*step, program.to_owned()));
        self.tasks.extend(added);
        !steps.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sampled.is_empty() && self.tasks.is_empty()
    }
}
