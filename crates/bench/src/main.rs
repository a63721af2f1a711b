//! `jaguar-bench`: measurements on this machine, each beside published figures and the physical limits.

#[path = "../../../papers/circulant/tables/mod.rs"]
mod circulant;
#[path = "../../../papers/hyena/tables/cirencode/mod.rs"]
mod cirencode;
#[path = "../../../papers/jaguar/tables/conv/mod.rs"]
mod conv;
#[path = "../../../papers/convfhe/tables/mod.rs"]
mod convfhe;
#[path = "../../../papers/jaguar/tables/e2e/mod.rs"]
mod e2e;
#[path = "../../../papers/fregata/tables/mod.rs"]
mod fregata;
#[path = "../../../papers/hyena/tables/hyena/mod.rs"]
mod hyena;
mod kit;
mod limits;
#[cfg(test)]
#[path = "../../cli/src/pages.rs"]
mod pages;
mod paper;
mod papers;
mod plot;
#[path = "../../../papers/jaguar/tables/relu/mod.rs"]
mod relu;
mod report;
mod setting;
mod statistics;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measures the parts of Jaguar on this machine, beside published figures.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Weights in skew-circulant blocks: layers and ImageNet's networks by block size, beside dense ones.
    Circulant(circulant::Args),
    /// CirEncode: circulant blocks in SIMD slots, by block size, beside dense layers with baby and giant steps.
    Cirencode(cirencode::Args),
    /// Single convolutions: the published form, ours and Cheetah's (Tables 3 and 9 of Jaguar's paper).
    Conv(conv::Args),
    /// ConvFHE: convolutions, layers and networks in one round (Figures 5 and 6, Tables III and IV of its paper).
    Convfhe(convfhe::Args),
    /// Whole networks (Tables 5, 10 and 11 of Jaguar's paper).
    E2e(e2e::Args),
    /// Fregata: encryption before the input only; layers and networks (Tables IV to VIII, Figures 7 to 10 of its paper).
    Fregata(fregata::Args),
    /// Hyena: convolutions in SIMD slots; operations, layers and networks (Tables 1 to 3, Figures 4 and 5 of its paper).
    Hyena(hyena::Args),
    /// All records of a paper, or of each: networks, runs, and the page beside the paper's figures.
    Paper(papers::Args),
    /// The nonlinear layers: Jaguar's flow and Cheetah's (Tables 2 and 4 of Jaguar's paper).
    Relu(relu::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().what {
        What::Circulant(args) => circulant::run(&args),
        What::Cirencode(args) => cirencode::run(&args),
        What::Conv(args) => conv::run(&args),
        What::Convfhe(args) => convfhe::run(&args),
        What::E2e(args) => e2e::run(&args),
        What::Fregata(args) => fregata::run(&args),
        What::Hyena(args) => hyena::run(&args),
        What::Paper(args) => papers::run(&args),
        What::Relu(args) => relu::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", jaguar_report::terminal::in_one_line(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}
