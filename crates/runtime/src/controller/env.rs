//! The interpreter's environment: globals, host and kernel.

use std::collections::BTreeSet;

use spile_ir::interp::{Env, Fault, Value};
use spile_ir::intrinsics::Intrinsic;
use spile_ir::stats::{EmptyAggregate, Stat};
use spile_ir::{Extract, FormatId, Space, Stream, Ty};
use spile_layout::SymbolicForm;

use crate::controller::early_end::EarlyEnds;
use crate::controller::globals::SessionGlobals;
use crate::controller::host::ControllerHost;
use crate::io::rows::PackedRows;
use crate::shared::process_tree;

/// The environment of the interpreter.
pub(super) struct ControllerEnv {
    pub globals: SessionGlobals,
    pub host: ControllerHost,
    /// The output of the running handler, in order.
    pub printed: Vec<Printed>,
    /// Whether prints are taken as rows.
    pub rows: bool,
    /// Whether the handler answers a scrape: `$value` is what it has printed.
    pub scraping: bool,
    pub truncated: u64,
    pub early: EarlyEnds,
    /// The ways out of limits that were said.
    pub ways_out_told: BTreeSet<String>,
}

/// Output of a handler.
pub(super) enum Printed {
    Text(Stream, Vec<u8>),
    Rows(PackedRows),
}

impl ControllerEnv {
    /// What the handler has printed so far.
    fn answer(&self) -> Vec<u8> {
        let text = self.printed.iter().filter_map(|p| match p {
            Printed::Text(Stream::Out, text) => Some(&text[..]),
            _ => None,
        });
        text.collect::<Vec<_>>().concat()
    }

    /// Sets what a scrape gets, or extends it.
    fn set_answer(&mut self, text: &[u8], add: bool) {
        if !add {
            let other = |p: &Printed| !matches!(p, Printed::Text(Stream::Out, _));
            self.printed.retain(other);
        }
        self.print(Stream::Out, text);
    }
}

impl Env for ControllerEnv {
    type Globals = SessionGlobals;

    fn globals(&mut self) -> &mut SessionGlobals {
        &mut self.globals
    }

    fn text(&self, v: &Value) -> Option<Value> {
        self.globals.texts.text(v)
    }

    fn key(&self, v: &Value, ty: Ty) -> Option<Value> {
        self.globals.texts.symbolic.key(v, ty).map(|k| k.0)
    }

    fn key_mark(&self, v: &Value) -> Option<Value> {
        self.globals.texts.symbolic.key_mark(v)
    }

    fn intrinsic(&mut self, f: Intrinsic, args: &[Value]) -> Result<Value, Fault> {
        match (f, args) {
            (Intrinsic::SymbolicForm, [form, numbers]) => {
                let symbolic = &mut self.globals.texts.symbolic;
                let (form, numbers) = (form.as_long(), numbers.as_bytes());
                // Lines of addresses are only printed, as by `print_syms`.
                let text = match form == SymbolicForm::KernelLines as i64 {
                    true => symbolic.mark(SymbolicForm::KernelLines, numbers),
                    false => symbolic.text(form, numbers),
                };
                Ok(Value::from(&text[..]))
            }
            (Intrinsic::InTree, [pid]) => {
                let kernel = self.globals.kernel.as_ref();
                let tree = kernel.and_then(|k| Some((k.state(), k.layout().tree?)));
                let contains =
                    |(state, offset)| process_tree::contains(state, offset, pid.as_long());
                Ok(Value::Long(tree.is_some_and(contains).into()))
            }
            (Intrinsic::ValueSet | Intrinsic::ValueAppend, [text]) => {
                let text = self.globals.texts.symbolic.render(text.as_bytes());
                let add = f == Intrinsic::ValueAppend;
                if self.scraping {
                    self.set_answer(&text, add);
                } else {
                    self.truncated += u64::from(!self.host.set_value(&text, add));
                }
                Ok(Value::Long(0))
            }
            (Intrinsic::ValueText, _) if self.scraping => Ok(Value::from(&self.answer()[..])),
            _ => self.host.intrinsic(f, args),
        }
    }

    fn read_memory(&mut self, space: Space, addr: u64, buf: &mut [u8]) -> Result<(), Fault> {
        match self.host.read(space, addr, buf)? {
            true => Ok(()),
            false => Err(Fault::from(format!("read fault at {addr:#x}"))),
        }
    }

    fn print_values(&mut self, stream: Stream, fmt: FormatId, values: &[Value]) -> bool {
        if !self.rows || stream != Stream::Out {
            return false;
        }
        match self.printed.last_mut() {
            Some(Printed::Rows(rows)) => rows.push(fmt, values),
            _ => {
                let mut rows = PackedRows::default();
                rows.push(fmt, values);
                self.printed.push(Printed::Rows(rows));
            }
        }
        true
    }

    fn print(&mut self, stream: Stream, text: &[u8]) {
        match self.printed.last_mut() {
            Some(Printed::Text(Stream::Out, output)) if stream == Stream::Out => {
                output.extend_from_slice(text);
            }
            _ => self.printed.push(Printed::Text(stream, text.to_vec())),
        }
    }

    fn must_stop(&mut self) -> bool {
        self.early.must_stop()
    }

    fn truncated(&mut self) {
        self.truncated += 1;
    }

    fn extract(&mut self, stat: &Stat, operator: Extract) -> Result<i64, EmptyAggregate> {
        let wrapped = self.globals.sums_wrapped();
        let (value, exact) = stat.extract_exactly(operator, wrapped)?;
        self.globals.inexact += u64::from(!exact);
        Ok(value)
    }
}
