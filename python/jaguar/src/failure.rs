//! Errors of the libraries as exceptions of `jaguar.errors`, by kind, with the texts that the command prints.

use std::error::Error;

use jaguar::EngineError;
use jaguar::bundle::BundleError;
use jaguar::compile::samples::folder::FolderError;
use jaguar::compile::samples::labelled::LabelError;
use jaguar::compile::samples::{FitError, OpenError};
use jaguar::compile::{CompileError, PreprocessingError};
use jaguar::import::ImportError;
use jaguar::machine::ProfileError;
use jaguar::machine::link::NoLink;
use jaguar::plan::PlanError;
use jaguar::reference::ReferenceError;
use jaguar::reports::ReportError;
use jaguar::reports::accuracy::AccuracyError;
use jaguar::reports::terminal::in_one_line;
use jaguar::wire::WireError;
use pyo3::prelude::*;

/// An error as Python gets it: a class of `jaguar.errors`, and its text.
#[derive(Debug)]
pub struct Failure {
    kind: &'static str,
    text: String,
}

impl Failure {
    /// Of the class that is called `kind`.
    pub fn new(kind: &'static str, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    /// An option that cannot be.
    pub fn option(text: impl Into<String>) -> Self {
        Self::new("OptionError", text)
    }

    /// An input that cannot be used.
    pub fn input(text: impl Into<String>) -> Self {
        Self::new("InputError", text)
    }

    /// The same, with words behind it.
    #[must_use]
    pub fn followed_by(self, words: &str) -> Self {
        Self { text: self.text + words, ..self }
    }

    /// The same, told of `what`.
    #[must_use]
    pub fn of(self, what: impl std::fmt::Display) -> Self {
        Self { text: format!("{what}: {}", self.text), ..self }
    }
}

impl From<Failure> for PyErr {
    fn from(Failure { kind, text }: Failure) -> Self {
        Python::attach(|py| {
            let class = py.import("jaguar.errors").and_then(|errors| errors.getattr(kind));
            match class.and_then(|class| class.call1((text,))) {
                Ok(exception) => Self::from_value(exception),
                Err(error) => error,
            }
        })
    }
}

fn kind_of_wire(error: &WireError) -> &'static str {
    match error {
        WireError::PeerAborted(_) => "PeerAbortedError",
        WireError::PeerBusy(_) => "ServerBusyError",
        WireError::PeerMisbehaved { .. } => "PeerError",
        _ => "ConnectionFailedError",
    }
}

fn kind_of_session(error: &EngineError) -> &'static str {
    match error {
        EngineError::InLayer { source, .. } | EngineError::AtStep { source, .. } => kind_of_session(source),
        EngineError::Wire(error) => kind_of_wire(error),
        EngineError::Version { .. }
        | EngineError::NoCommonProtocol { .. }
        | EngineError::PeerMisbehaved(_)
        | EngineError::Ot(_)
        | EngineError::Mpc(_) => "PeerError",
        EngineError::Later(_)
        | EngineError::QueriesSpent(_)
        | EngineError::HintsSpent { .. }
        | EngineError::AddressHintsSpent { .. } => "ServerBusyError",
        EngineError::Plan(_) => "PlanError",
        EngineError::Bundle(_) => "ModelError",
        EngineError::Input(_) => "InputError",
        EngineError::Idle { .. } => "ConnectionFailedError",
        _ => "JaguarError",
    }
}

impl From<ReportError> for Failure {
    fn from(error: ReportError) -> Self {
        Self::new("JaguarError", in_one_line(&error))
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        Self::new(kind_of_session(&error), in_one_line(&error))
    }
}

impl From<WireError> for Failure {
    fn from(error: WireError) -> Self {
        Self::new(kind_of_wire(&error), in_one_line(&error))
    }
}

impl From<ImportError> for Failure {
    fn from(error: ImportError) -> Self {
        let kind = match error {
            ImportError::Unsupported(_) | ImportError::Opset { .. } | ImportError::TooLarge(_) => {
                "UnsupportedModelError"
            }
            _ => "ModelError",
        };
        Self::new(kind, in_one_line(&error))
    }
}

impl From<CompileError> for Failure {
    fn from(error: CompileError) -> Self {
        let kind = match error {
            CompileError::Labels { .. }
            | CompileError::Bound
            | CompileError::GuardBits(_)
            | CompileError::NoClasses(_)
            | CompileError::NoPictures
            | CompileError::Loss => "OptionError",
            CompileError::Reference(_)
            | CompileError::Label(_)
            | CompileError::Open(_)
            | CompileError::Picture { .. } => "InputError",
            _ => "CompileError",
        };
        Self::new(kind, in_one_line(&error))
    }
}

impl From<AccuracyError> for Failure {
    fn from(error: AccuracyError) -> Self {
        let kind = match error {
            AccuracyError::Top { .. } => "OptionError",
            AccuracyError::NoClasses | AccuracyError::OtherNetwork { .. } => "ModelError",
            _ => "InputError",
        };
        Self::new(kind, in_one_line(&error))
    }
}

/// Errors that are all of one kind.
macro_rules! kinds {
    ($($error:ty => $kind:literal),* $(,)?) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                let error: &(dyn Error + 'static) = &error;
                Self::new($kind, in_one_line(error))
            }
        }
    )*};
}

kinds! {
    BundleError => "ModelError",
    FitError => "InputError",
    FolderError => "InputError",
    LabelError => "InputError",
    OpenError => "InputError",
    ReferenceError => "InputError",
    NoLink => "OptionError",
    PreprocessingError => "OptionError",
    PlanError => "PlanError",
    ProfileError => "JaguarError",
    serde_json::Error => "JaguarError",
}
