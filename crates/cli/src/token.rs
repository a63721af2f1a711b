//! `jaguar token`

use std::path::PathBuf;

use anyhow::Result;
use jaguar_net::TokenFile;
use jaguar_terminal::say;

#[derive(clap::Args)]
pub struct Args {
    /// What the client is called in the server's log.
    name: String,
    /// The file that `jaguar serve --tokens` reads. It is made if it is not there; a line that is taken out of it counts at once.
    #[arg(long, value_name = "FILE")]
    tokens: PathBuf,
}

pub fn run(args: &Args) -> Result<()> {
    let token = TokenFile::add(&args.tokens, &args.name)?;
    eprintln!("note: this token is shown once; {} has its hash alone", args.tokens.display());
    say!("{}", *token.secret_text());
    Ok(())
}
