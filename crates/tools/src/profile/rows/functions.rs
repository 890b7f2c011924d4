//! Functions of programs in Python, Ruby and PHP in the place of the interpreter's C function that executes them.

use std::collections::HashMap;

use spile_profile::interpreter::Interpreter;
use spile_profile::model::StackFrame;

use crate::rows::Fields;

/// Limit on the depth of a stack, as in `interpreter_stack()` of `tools/profile.stp`.
const MOST: usize = 64;

/// The functions of stacks, by the numbers of the stacks.
#[derive(Debug, Default)]
pub(super) struct InterpreterStacks(HashMap<i64, InterpreterStack>);

#[derive(Debug, Default)]
struct InterpreterStack {
    /// The functions, the innermost run first, and in it the innermost function. Runs can be empty.
    runs: Vec<Vec<StackFrame>>,
    /// Number of functions.
    frames: usize,
}

impl InterpreterStacks {
    /// Adds a function from a row; each stack's come in their order, and again if another thread has the stack too.
    pub(super) fn learn(&mut self, f: &mut Fields<'_>) -> Option<()> {
        let (stack, index, run): (i64, usize, usize) = (f.integer()?, f.integer()?, f.integer()?);
        let class = f.string()?;
        let name = f.string()?;
        let function = match &*class {
            "" => name.into_owned(),
            class => format!("{class}::{name}"),
        };
        let file = f.string()?.into_owned();
        let line = f.integer()?;
        if index >= MOST || run >= MOST {
            return None;
        }
        let stack = self.0.entry(stack).or_default();
        if index < stack.frames {
            return Some(());
        }
        stack.frames = index + 1;
        if stack.runs.len() <= run {
            stack.runs.resize_with(run + 1, Vec::new);
        }
        stack.runs[run].push(StackFrame {
            function,
            file: Some(file),
            line: Some(line).filter(|line| *line > 0),
            ..StackFrame::default()
        });
        Some(())
    }

    /// Puts the functions of a stack in the place of the interpreter's. `cut` tells whether outer frames are missing.
    pub(super) fn merge(
        &self,
        stack: i64,
        mut native: Vec<StackFrame>,
        cut: bool,
    ) -> Vec<StackFrame> {
        let Some(InterpreterStack { runs, frames }) = self.0.get(&stack) else {
            return native;
        };
        // Functions of the interpreter without names say nothing, but that the one which executes others is among them if
        // it is not named.
        let mut nameless = (0..native.len()).filter(|n| is_nameless(&native[*n]));
        if !native.iter().any(executes)
            && let Some(first) = nameless.next()
        {
            let last = nameless.next_back().unwrap_or(first);
            native.splice(first..=last, runs.iter().flatten().cloned());
            return native;
        }
        native.retain(|frame| !is_nameless(frame));
        let places = native.iter().filter(|f| executes(f)).count();
        // The outermost ones belong together unless a stack is cut. Within, the C function may have no function of the
        // program yet, or code that has no symbol.
        let whole = !cut && *frames < MOST;
        let missing = if whole {
            runs.len().saturating_sub(places)
        } else {
            0
        };
        let ahead = if whole {
            places.saturating_sub(runs.len())
        } else {
            0
        };
        let (inner, mut runs) = (runs.iter().take(missing), runs.iter().skip(missing));
        let mut inner = Some(inner.flatten());
        let mut merged = Vec::new();
        let mut place = 0;
        for frame in native {
            if !executes(&frame) {
                merged.push(frame);
                continue;
            }
            merged.extend(inner.take().into_iter().flatten().cloned());
            let run = if place < ahead { None } else { runs.next() };
            match run {
                Some(run) if !run.is_empty() => merged.extend(run.iter().cloned()),
                _ => merged.push(frame),
            }
            place += 1;
        }
        merged.extend(inner.into_iter().flatten().chain(runs.flatten()).cloned());
        merged
    }
}

/// Whether a frame is of the C function of an interpreter that executes functions of programs.
fn executes(frame: &StackFrame) -> bool {
    let mut all = Interpreter::ALL.into_iter();
    all.any(|interpreter| interpreter.executes(&frame.function))
}

/// Whether a frame has no name and is of an interpreter, or of code that it generated: PHP maps `/dev/zero` for that.
fn is_nameless(frame: &StackFrame) -> bool {
    let generated = || frame.module.as_ref().is_none_or(|m| m == "zero");
    frame.function.starts_with("0x") && (frame.interpreter().is_some() || generated())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(text: &str) -> Vec<StackFrame> {
        let frame = |name: &str| StackFrame {
            function: name.replace('@', "_PyEval_EvalFrameDefault"),
            ..StackFrame::default()
        };
        text.split_whitespace().map(frame).collect()
    }

    fn merged(runs: &str, native: &str, cut: bool) -> String {
        let runs: Vec<_> = runs.split('|').map(frames).collect();
        let frames_of_all = runs.iter().map(Vec::len).sum();
        let stack = InterpreterStack {
            runs,
            frames: frames_of_all,
        };
        let stacks = InterpreterStacks([(7, stack)].into());
        let names = stacks.merge(7, frames(native), cut).into_iter();
        let names: Vec<String> = names
            .map(|f| f.function.replace("_PyEval_EvalFrameDefault", "@"))
            .collect();
        names.join(" ")
    }

    #[test]
    fn functions_replace_the_function_that_executes_them() {
        assert_eq!(merged("f g", "c @ main", false), "c f g main");
        assert_eq!(
            merged("f|g h", "c @ call @ main", false),
            "c f call g h main"
        );
        assert_eq!(merged("f|g", "@.cold call @ main", false), "f call g main");
        // A function that was just entered, by its own shim or not at all.
        assert_eq!(merged("|g", "c @ call @ main", false), "c @ call g main");
        assert_eq!(merged("g", "c @ call @ main", false), "c @ call g main");
        // The innermost code has no symbol.
        assert_eq!(
            merged("f|g|h", "0x12 call @ call @ main", false),
            "call f g call h main"
        );
        // Nothing is in the stack, or its outer part is missing.
        assert_eq!(merged("f|g", "c main", false), "c main f g");
        assert_eq!(merged("f|g|h", "c @ call @", true), "c f call g h");
        assert_eq!(merged("f", "c @ call @", true), "c f call @");
        let other = InterpreterStacks::default().merge(0, frames("c @"), false);
        assert_eq!(other, frames("c @"));
    }

    #[test]
    fn nameless_functions_of_the_interpreter_vanish() {
        let merged = |native: &str| {
            let runs = [frames("f"), frames("g h")].to_vec();
            let stack = InterpreterStack { runs, frames: 3 };
            let native = native.split_whitespace().map(|name| StackFrame {
                function: name.to_owned(),
                module: Some(
                    ["libc.so.6", "libruby.so.3.3"][usize::from(!name.starts_with('p'))].into(),
                ),
                ..StackFrame::default()
            });
            let merged = InterpreterStacks([(7, stack)].into()).merge(7, native.collect(), false);
            let names: Vec<_> = merged.into_iter().map(|f| f.function).collect();
            names.join(" ")
        };
        // With the name of the function that executes others, without it, and with none that is nameless.
        assert_eq!(
            merged("poll 0x1 rb_sleep 0x2 0x3 rb_vm_exec 0x4 rb_each 0x5 rb_vm_exec 0x6 main"),
            "poll rb_sleep f rb_each g h main"
        );
        assert_eq!(
            merged("poll rb_sleep 0x2 rb_each 0x5 0x6 main"),
            "poll rb_sleep f g h main"
        );
        assert_eq!(merged("rb_gc main"), "rb_gc main f g h");
    }
}
