//! The errors of a compilation.

use std::borrow::Cow;
use std::fmt;

use spile_ebpf::emit::EmitError;
use spile_ebpf::isa::asm::AsmError;
use spile_layout::plan::PlanError;

/// The result of a step of code generation.
pub(crate) type Res<T = ()> = Result<T, LowerError>;

/// The reason why code cannot be generated.
#[derive(Debug, Clone)]
pub enum LowerError {
    /// An instruction or a plan that the passes before should not have let through.
    Malformed(Cow<'static, str>),
    /// Handlers cannot do it on this kernel, or on any.
    Unsupported(Cow<'static, str>),
    /// It exceeds a limit.
    TooLarge(Cow<'static, str>),
    /// The code cannot be emitted.
    Emit(EmitError),
}

impl LowerError {
    /// See [`LowerError::Malformed`].
    pub(crate) fn malformed(what: impl Into<Cow<'static, str>>) -> LowerError {
        LowerError::Malformed(what.into())
    }

    /// See [`LowerError::Unsupported`].
    pub(crate) fn unsupported(what: impl Into<Cow<'static, str>>) -> LowerError {
        LowerError::Unsupported(what.into())
    }

    /// See [`LowerError::TooLarge`].
    pub(crate) fn too_large(what: impl Into<Cow<'static, str>>) -> LowerError {
        LowerError::TooLarge(what.into())
    }
}

impl From<&'static str> for LowerError {
    fn from(what: &'static str) -> LowerError {
        LowerError::malformed(what)
    }
}

impl From<EmitError> for LowerError {
    fn from(e: EmitError) -> LowerError {
        LowerError::Emit(e)
    }
}

impl From<PlanError> for LowerError {
    fn from(e: PlanError) -> LowerError {
        match e {
            PlanError::Malformed(what) => LowerError::malformed(what),
            PlanError::TooLarge(what) => LowerError::too_large(what),
        }
    }
}

impl From<AsmError> for LowerError {
    fn from(e: AsmError) -> LowerError {
        LowerError::Emit(EmitError::Asm(e))
    }
}

impl fmt::Display for LowerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LowerError::Malformed(what)
            | LowerError::Unsupported(what)
            | LowerError::TooLarge(what) => f.write_str(what),
            LowerError::Emit(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for LowerError {}

/// The reason why a program cannot be compiled to BPF. Analysis refuses what kernel handlers cannot
/// do, with a better message; this error names what analysis missed.
#[derive(Debug, Clone)]
pub struct CompileError {
    /// The handler's probe point; empty if the error concerns the whole script.
    pub handler: String,
    /// The position in the script.
    pub site: String,
    /// The reason.
    pub reason: LowerError,
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot compile")?;
        if !self.handler.is_empty() {
            write!(f, " the handler of {}", self.handler)?;
        }
        write!(f, ": {}", self.reason)?;
        if !self.site.is_empty() {
            write!(f, ", near {}", self.site)?;
        }
        Ok(())
    }
}

impl std::error::Error for CompileError {}

/// An error that concerns the whole script.
pub(crate) fn program_error(reason: impl Into<LowerError>) -> CompileError {
    CompileError {
        handler: String::new(),
        site: String::new(),
        reason: reason.into(),
    }
}
