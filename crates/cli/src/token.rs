//! `jaguar token`: a new client's token, of which the server's file gets the hash.

use std::path::PathBuf;

use anyhow::Result;
use jaguar::net::TokenFile;
use jaguar::reports::terminal::say;

#[derive(clap::Args)]
pub struct Args {
    /// What the client is called in the server's log.
    name: String,
    /// The file that `jaguar serve --tokens` reads.
    ///
    /// It is made if it is not there. A line that is taken out of it counts at once.
    #[arg(long, help_heading = "Files", value_name = "FILE")]
    tokens: PathBuf,
}

pub fn run(args: &Args) -> Result<()> {
    let token = TokenFile::add(&args.tokens, &args.name)?;
    eprintln!("note: this token is shown once; {} has its hash alone", args.tokens.display());
    say!("{}", *token.secret_text());
    Ok(())
}
