//! What records of the ring buffer ask for: output, errors, reads of strings, files to learn.

use std::rc::Rc;

use spile_ir::interp::{Env, Value};
use spile_ir::{FormatId, HandlerId, Program, SiteId, Stream};
use spile_layout::RecordKind;

use super::{Controller, message};
use crate::shared::ring_record::{self, FieldValue, OutputRecord};

impl Controller {
    /// Reads the deferred string of a record, if it is such a record.
    pub fn read_deferred(&mut self, bytes: &[u8]) {
        let Some(deferred) = &mut self.deferred else {
            return;
        };
        let Ok((_, mut pieces)) = ring_record::open(bytes, &self.shapes) else {
            return;
        };
        let Some(Ok(piece)) = pieces.next_if_early() else {
            return;
        };
        let program = Rc::clone(&self.env.globals.program);
        if self.shapes[piece.shape].what == RecordKind::File {
            match self.env.globals.texts.symbolic.learn_file(&piece.fields) {
                Some(good) => self.losses.unnamed += u64::from(!good),
                None => self.losses.malformed += 1,
            }
            return;
        }
        if self.shapes[piece.shape].what == RecordKind::Copy {
            let learnt = self.env.globals.texts.symbolic.learn_copy(&piece);
            self.losses.malformed += u64::from(learnt.is_none());
            return;
        }
        let host = &mut self.env.host;
        let mut kernel = |addr| host.kernel_word(addr);
        match deferred.read(&piece.fields, &program.strings, &mut kernel) {
            Some(good) => self.losses.unreadable += u64::from(!good),
            None => self.losses.malformed += 1,
        }
    }

    /// The process and the time of an `execve`, if the record reports one.
    pub fn executed(&self, bytes: &[u8]) -> Option<(u32, u64)> {
        ring_record::executed(bytes, &self.shapes)
    }

    /// Prints one record of the kernel.
    pub fn record(&mut self, bytes: &[u8]) {
        self.records += 1;
        let program = Rc::clone(&self.env.globals.program);
        let shapes = Rc::clone(&self.shapes);
        let Ok((_, pieces)) = ring_record::open(bytes, &shapes) else {
            self.losses.malformed += 1;
            return;
        };
        for piece in pieces {
            match piece {
                Ok(piece) => match &shapes[piece.shape].what {
                    RecordKind::Print { stream, fmt } => {
                        self.kernel_print(&program, *stream, *fmt, &piece);
                    }
                    // It was handled when the record came.
                    RecordKind::Deferred
                    | RecordKind::File
                    | RecordKind::Executed
                    | RecordKind::Copy => {}
                    RecordKind::Hist(hist) => {
                        self.write(Stream::Out, hist.draw(&piece.words).as_bytes());
                    }
                    RecordKind::Error {
                        kind,
                        site,
                        handler,
                    } => {
                        let text =
                            message::kernel_error(*kind, &piece.fields, &self.env.globals.program);
                        self.kernel_error(&text, *site, &[], *handler);
                    }
                    RecordKind::Rethrown { kinds, handler } => {
                        match message::rethrown(kinds, &piece.fields, &program) {
                            Some(e) => {
                                self.kernel_error(&e.message, e.site, &e.callers, *handler);
                            }
                            None => self.losses.malformed += 1,
                        }
                    }
                },
                Err(ring_record::MalformedRecord) => self.losses.malformed += 1,
            }
        }
    }

    fn kernel_print(
        &mut self,
        program: &Program,
        stream: Stream,
        fmt: FormatId,
        piece: &OutputRecord<'_>,
    ) {
        if stream == Stream::Out && self.out.takes_rows() {
            return self.row(fmt.index(), &piece.fields);
        }
        let Some(format) = program.formats.get(fmt.index()) else {
            self.losses.malformed += 1;
            return;
        };
        let args: Vec<Value> = piece
            .fields
            .iter()
            .map(|f| match f {
                FieldValue::Long(n) => Value::Long(*n),
                FieldValue::Str(s) => match &self.deferred {
                    Some(deferred) => {
                        let text = deferred.render(s);
                        Value::from(&*self.env.globals.texts.symbolic.render(&text))
                    }
                    None => Value::from(*s),
                },
            })
            .collect();
        let mut text = Vec::new();
        let env = &mut self.env;
        let mut memory = |space, addr, buf: &mut [u8]| env.read_memory(space, addr, buf);
        if spile_ir::fmt::render(format, &args, &mut memory, &mut text).is_err() {
            self.losses.malformed += 1;
        }
        self.write(stream, &text);
    }

    fn kernel_error(
        &mut self,
        message: &str,
        site: SiteId,
        callers: &[SiteId],
        handler: HandlerId,
    ) {
        let others = self.kernel().map(|k| k.layout().others(handler));
        let probe = (Some(handler), others.unwrap_or_default());
        let line = message::error_line(message, site, callers, probe, &self.env.globals.program);
        self.errors_seen = true;
        if self.is_silent(message) {
            return;
        }
        self.out.flush();
        self.out.print_error(&line);
        self.say_way_out(message, site, handler);
    }
}
