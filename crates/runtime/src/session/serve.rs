//! What the event loop does for each source of events that is ready.

use std::rc::Rc;

use spile_cast::Cast;
use spile_ir::{Event, HandlerId, Program};

use super::{Session, system};
use crate::controller::Controller;
use crate::error::Error;
use crate::io::input::{Input, InputEvent};
use crate::io::procfs::FileRequest;
use crate::io::prometheus::{Interest, NextStep};
use crate::io::recorder::Recorder;
use crate::machine::signals::Signal;
use crate::session::events::EventSource;

impl Session {
    /// Does what a source of events that is ready asks for.
    pub(super) fn serve(&mut self, source: EventSource) -> Result<(), Error> {
        match source {
            EventSource::Ring => self.consume_and_rest(),
            EventSource::Signal => {
                while let Some(signal) = self.signals.next() {
                    match signal {
                        Signal::End | Signal::Leave => {
                            (self.ended, self.interrupted) = (true, true)
                        }
                        Signal::Child => self.controller.commands.reap(),
                        Signal::Size => self.serve_external(),
                        Signal::NextFile => {
                            self.consume();
                            self.controller.out.flush();
                            self.controller.out.next_file();
                        }
                    }
                }
            }
            EventSource::Child => {
                self.consume();
                self.signals.request_end();
                self.ended = true;
            }
            EventSource::Stdin => self.stdin(),
            EventSource::Outside => self.serve_external(),
            EventSource::Clients => {
                let recorder = self.controller.out.recorder();
                if recorder.is_some_and(Recorder::serve) {
                    (self.ended, self.interrupted) = (true, true);
                }
            }
            EventSource::Tables => self.controller.take_read_files(),
            EventSource::Files => self.serve_files()?,
            EventSource::Listener => self.accept(),
            EventSource::Conn(token) => self.connection(token),
            EventSource::Timer(index) => {
                let random = self.controller.random();
                let Some((timer, id)) = self.timers.get(index as usize) else {
                    return Ok(());
                };
                let id = *id;
                if timer.acknowledge(random).map_err(system("a timer"))? {
                    self.consume();
                    if !self.is_over() {
                        self.controller.run(id);
                    }
                }
            }
        }
        Ok(())
    }

    /// Calls back for a source of the session's caller.
    fn serve_external(&mut self) {
        if let Some(outside) = &mut self.options.outside {
            self.ended |= (outside.ready)().is_break();
        }
    }

    /// Runs the probes of files for their readers and writers.
    fn serve_files(&mut self) -> Result<(), Error> {
        self.consume();
        let Some(mut files) = self.files.take() else {
            return Ok(());
        };
        let program = Rc::clone(&self.program);
        let controller = &mut self.controller;
        let served = files.serve(&mut |request| answer(controller, &program, request));
        self.files = Some(files);
        served.map_err(system("serving files"))
    }

    /// Reads standard input and runs its probes.
    pub(super) fn stdin(&mut self) {
        let Some(input) = &mut self.input else { return };
        let typed = input.read();
        if input.ended && !input.always_ready {
            self.events.remove(Input::fd());
        }
        self.consume();
        // A newline is a character and also ends a line: both probes get it, in script order.
        for InputEvent { byte, line } in typed {
            for id in self.ids(|e| matches!(e, Event::InputLine | Event::InputChar)) {
                let text = match self.program.handlers[id.index()].event {
                    Event::InputLine => line.clone(),
                    _ => byte.map(|b| vec![b]),
                };
                let Some(text) = text else { continue };
                if self.is_over() {
                    return;
                }
                self.controller.set_input(text);
                self.controller.run(id);
            }
        }
        self.ended |= self.has_no_more_events();
    }

    /// Whether the session has nothing left to wait for: standard input was its only source of
    /// events.
    fn has_no_more_events(&self) -> bool {
        let ended = self.input.as_ref().is_some_and(|i| i.ended);
        let others = self.backend.is_some()
            || self.ending_process().is_some()
            || self.server.is_some()
            || self.files.is_some()
            || self.options.timeout.is_some();
        ended && !others && self.timers.is_empty()
    }

    /// Accepts connections of readers of metrics.
    fn accept(&mut self) {
        let Some(server) = &mut self.server else {
            return;
        };
        while let Some((token, socket)) = server.accept() {
            // A socket that cannot be registered is dropped at its timeout.
            let _ = self.events.add(socket, EventSource::Conn(token));
        }
    }

    /// Reads from a connection and answers it, or writes the rest of the answer.
    fn connection(&mut self, token: u64) {
        self.consume();
        let Some(mut server) = self.server.take() else {
            return;
        };
        let ids = self.ids(|e| *e == Event::Prometheus);
        let controller = &mut self.controller;
        let next = server.serve(token, &mut || controller.capture(&ids));
        if let (NextStep::Wait(wants), Some(socket)) = (next, server.socket(token)) {
            let _ = self
                .events
                .modify(socket, EventSource::Conn(token), wants == Interest::Write);
        }
        self.server = Some(server);
    }
}

/// Runs the handlers for a request; returns the resulting `$value`.
fn answer(controller: &mut Controller, program: &Program, request: FileRequest) -> Vec<u8> {
    let (path, text, write) = match request {
        FileRequest::Read(path) => (path, Vec::new(), false),
        FileRequest::Write(path, text) => (path, text, true),
    };
    let mine = program.handlers.iter().enumerate().filter_map(|(i, h)| {
        let file = match &h.event {
            Event::Procfs(file) if file.path == path && file.write == write => file,
            _ => return None,
        };
        Some((HandlerId(i.fit()), file.maxsize))
    });
    let mine: Vec<(HandlerId, u32)> = mine.collect();
    let most = mine.iter().map(|(_, most)| *most).max();
    controller.set_value(text, most.unwrap_or(0) as usize);
    for (id, _) in mine {
        if !controller.exit_wanted() {
            controller.run(id);
        }
    }
    controller.take_value()
}
