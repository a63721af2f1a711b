//! Which operators there are: a value that is handed to an import.

use crate::import::Build;

/// One operator, as a list of them knows it.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// What it is called in reports.
    pub name: &'static str,
    /// The ONNX operators that it is made of, each with its builder. One of a domain that is not ONNX's own is called
    /// `domain:Operator`.
    pub onnx: &'static [(&'static str, Build)],
}

/// The operators that a model may have.
#[derive(Clone, Debug, Default)]
pub struct Operators {
    kinds: Vec<Kind>,
    /// What ONNX operators become that are made of several kinds, or of none.
    onnx: Vec<&'static [(&'static str, Build)]>,
}

impl Operators {
    /// One operator more.
    pub fn with(mut self, kind: Kind) -> Self {
        self.kinds.push(kind);
        self
    }

    /// The same operators, and more of ONNX's that become some of them, named as in [`Kind::onnx`].
    pub fn reading(mut self, onnx: &'static [(&'static str, Build)]) -> Self {
        self.onnx.push(onnx);
        self
    }

    /// What an ONNX operator becomes; of several that were given, the last one's.
    pub(crate) fn onnx(&self, name: &str) -> Option<Build> {
        let tables = self.kinds.iter().map(|kind| kind.onnx).chain(self.onnx.iter().copied()).rev();
        tables.flatten().find(|(own, _)| *own == name).map(|(_, build)| *build)
    }
}
