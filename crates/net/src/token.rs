//! Tokens: what shows who a client is, where it has no certificate.
//!
//! A token is 32 bytes from the system's generator, so a plain hash of it tells nothing: there is no dictionary to try. The
//! server's file holds hashes only. A token is sent inside TLS, after the server has shown who it is.
//!
//! ```text
//! # one client a line: the SHA-256 of a label and its token, and its name
//! 5f0c...e1 alice
//! ```

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ring::digest::{Context, SHA256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::pem::{self, FileError};

/// What a token's text begins with, so that one that got into a text is found.
const PREFIX: &str = "jaguar_";

/// Keeps the hash apart from all other uses.
const LABEL: &[u8] = b"jaguar client token\0";

/// Letters of a client's name, at most.
const LONGEST_NAME: usize = 64;

/// What a client shows to be let in. It has no `Debug`: it is a secret.
#[derive(Clone)]
pub struct Token(Zeroizing<[u8; 32]>);

/// A text that is no token. (It is not shown: it may be one that is cut off.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no token: `jaguar_` and 64 hexadecimal digits are needed")]
pub struct NoToken;

impl Token {
    /// A new one.
    ///
    /// # Panics
    /// When the system has no random numbers.
    pub fn new() -> Self {
        let mut bytes = Zeroizing::new([0; 32]);
        getrandom::fill(&mut *bytes).expect("the system has random numbers");
        Self(bytes)
    }

    /// The token in the first line of a file that its owner alone may use: a token is a bearer's.
    ///
    /// # Errors
    /// When the file cannot be read, others may use it, or it holds something else.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let what = "the token in";
        let text = pem::read(what, path)?;
        let text = std::str::from_utf8(&text).ok().and_then(|text| text.lines().next());
        let token = text.unwrap_or("").trim().parse().map_err(|e: NoToken| FileError::new(what, path, e))?;
        // What is no secret is told first.
        pem::private(what, path).map(|()| token)
    }

    /// As text, to be given to the client alone.
    pub fn secret_text(&self) -> Zeroizing<String> {
        let mut text = String::with_capacity(PREFIX.len() + 64);
        text.push_str(PREFIX);
        push_hex(&mut text, &*self.0);
        Zeroizing::new(text)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &*self.0
    }

    /// What the server's file holds.
    fn hash(bytes: &[u8]) -> [u8; 32] {
        let mut context = Context::new(&SHA256);
        context.update(LABEL);
        context.update(bytes);
        context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
    }
}

impl Default for Token {
    fn default() -> Self {
        Self::new()
    }
}

impl FromStr for Token {
    type Err = NoToken;

    fn from_str(text: &str) -> Result<Self, NoToken> {
        let digits = text.strip_prefix(PREFIX).ok_or(NoToken)?;
        Ok(Self(Zeroizing::new(from_hex(digits).ok_or(NoToken)?)))
    }
}

/// 32 bytes from 64 hexadecimal digits.
pub(crate) fn from_hex(digits: &str) -> Option<[u8; 32]> {
    let digits = digits.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |d: u8| char::from(d).to_digit(16);
        *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
    }
    Some(bytes)
}

pub(crate) fn push_hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(digit.into(), 16).expect("below 16"));
        }
    }
}

/// The file of the tokens that a server knows. It is read anew for each client: a line that is taken out counts at once.
#[derive(Clone, Debug)]
pub struct TokenFile {
    path: PathBuf,
}

const WHAT: &str = "the clients' tokens in";

impl TokenFile {
    /// The file at `path`, which must be there.
    ///
    /// # Errors
    /// When it cannot be read, or a line is not as it should be.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, FileError> {
        let file = Self { path: path.into() };
        file.entries()?;
        Ok(file)
    }

    /// Whose token it is: none if nobody's. Every line is compared, in a time that depends on none of them.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn find(&self, token: &[u8]) -> Result<Option<String>, FileError> {
        let hash = Token::hash(token);
        let mut found = None;
        for (known, name) in self.entries()? {
            if bool::from(known.ct_eq(&hash)) {
                found = Some(name);
            }
        }
        Ok(found)
    }

    /// Adds a client and gives its token, of which the file keeps the hash alone. Makes the file if there is none.
    ///
    /// # Errors
    /// When the name is not one of 1 to 64 letters, digits, `-`, `_` and `.`, is there already, or the file cannot be written.
    pub fn add(path: &Path, name: &str) -> Result<Token, FileError> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(fits) {
            let why = format!("'{name}' is no name of 1 to {LONGEST_NAME} letters, digits, '-', '_' and '.'");
            return Err(FileError::new(WHAT, path, why));
        }
        let file = Self { path: path.to_owned() };
        if path.exists() && file.entries()?.iter().any(|(_, known)| known == name) {
            return Err(FileError::new(WHAT, path, format!("'{name}' is there already")));
        }
        let token = Token::new();
        let mut line = String::new();
        push_hex(&mut line, &Token::hash(token.bytes()));
        line.push_str(&format!(" {name}\n"));
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        // One write: a server that reads meanwhile sees all of the line or none.
        let append = || {
            let mut file = options.open(path)?;
            let before = file.metadata()?.len();
            file.write_all(line.as_bytes()).inspect_err(|_| {
                // A part of a line would have the server believe none of the others.
                let _ = file.set_len(before);
            })
        };
        append().map_err(FileError::io(WHAT, path))?;
        Ok(token)
    }

    fn entries(&self) -> Result<Vec<([u8; 32], String)>, FileError> {
        let text = pem::read(WHAT, &self.path)?;
        let text = std::str::from_utf8(&text).map_err(|e| FileError::new(WHAT, &self.path, e))?;
        let lines = text
            .lines()
            .map(str::trim)
            .zip(1..)
            .filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
        let entry = |(line, number): (&str, usize)| {
            let entry =
                line.split_once(' ').and_then(|(hash, name)| Some((from_hex(hash)?, name.trim().to_owned())));
            entry.ok_or_else(|| {
                FileError::new(WHAT, &self.path, format!("line {number} is no hash and a name"))
            })
        };
        lines.map(entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_written_and_read() {
        let token = Token::new();
        let text = token.secret_text();
        assert_eq!(text.len(), 71);
        assert!(text.parse::<Token>().is_ok_and(|read| read.bytes() == token.bytes()));
        assert!(token.bytes() != Token::new().bytes());
        for bad in
            ["", "jaguar_", &text[1..], &text[..70], &format!("{}g", &text[..70]), &format!("{}0", *text)]
        {
            assert_eq!(bad.parse::<Token>().err(), Some(NoToken), "{} letters", bad.len());
        }
    }

    #[test]
    fn a_hash_is_that_of_the_label_and_the_bytes() {
        // printf 'jaguar client token\0' | cat - <(head -c 32 /dev/zero) | sha256sum
        let mut text = String::new();
        push_hex(&mut text, &Token::hash(&[0; 32]));
        assert_eq!(text, HASH_OF_ZEROS);
        assert_eq!(from_hex(HASH_OF_ZEROS), Some(Token::hash(&[0; 32])));
    }

    #[cfg(unix)]
    #[test]
    fn a_token_that_others_may_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("jaguar-token-modes-{}", std::process::id()));
        std::fs::write(&path, &*Token::new().secret_text()).expect("written");
        for mode in [0o600, 0o400, 0o644, 0o640, 0o604, 0o620, 0o610] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("our own file");
            match (mode & 0o077, Token::read(&path)) {
                (0, read) => assert!(read.is_ok(), "{mode:o}"),
                (_, read) => {
                    let error = read.err().expect("refused").to_string();
                    let told = format!("others may use it (mode {mode:o}): chmod 600 {}", path.display());
                    assert!(error.contains(&told), "{error}");
                }
            }
        }
        std::fs::remove_file(&path).expect("there");
    }

    const HASH_OF_ZEROS: &str = "27acf4bf0945fb1a7c2a12d2e1b05b5142b922dedf14b71874258f241d5f0f99";

    #[test]
    fn a_file_of_tokens_knows_its_own_until_they_are_taken_out() {
        let path = std::env::temp_dir().join(format!("jaguar-tokens-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        assert!(TokenFile::open(&path).is_err_and(|e| e.to_string().contains(&path.display().to_string())));
        let [alice, bob] = ["alice", "bob"].map(|name| TokenFile::add(&path, name).expect("added"));
        let file = TokenFile::open(&path).expect("sound");
        let name = |token: &Token| file.find(token.bytes()).expect("sound");
        assert_eq!([name(&alice), name(&bob)], [Some("alice".into()), Some("bob".into())]);
        assert_eq!(name(&Token::new()), None);
        assert_eq!(file.find(&[]).expect("sound"), None);
        assert_eq!(file.find(&alice.bytes()[..31]).expect("sound"), None);

        let text = std::fs::read_to_string(&path).expect("written");
        for token in [&alice, &bob] {
            assert!(!text.contains(&token.secret_text()[PREFIX.len()..]), "the file holds a token");
        }
        assert!(
            TokenFile::add(&path, "bob").is_err_and(|e| e.to_string().contains("'bob' is there already"))
        );
        for bad in ["", "two words", "line\nbreak", &"x".repeat(65)] {
            assert!(TokenFile::add(&path, bad).is_err_and(|e| e.to_string().contains("is no name")), "{bad}");
        }
        let rest: Vec<&str> = text.lines().filter(|line| !line.ends_with("alice")).collect();
        std::fs::write(&path, format!("# clients\n\n{}\n", rest.join("\n"))).expect("written");
        assert_eq!([name(&alice), name(&bob)], [None, Some("bob".into())]);
        std::fs::write(&path, "abc alice\n").expect("written");
        assert!(file.find(alice.bytes()).is_err_and(|e| e.to_string().contains("line 1")));
        std::fs::remove_file(&path).expect("there");
    }
}
