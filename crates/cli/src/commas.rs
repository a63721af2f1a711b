//! Options of several numbers: what to say to somebody who put spaces between them.

use std::ffi::OsString;

/// Options that take numbers with commas between them.
const OF_NUMBERS: [&str; 3] = ["--mean", "--std", "--input-shape"];

/// What helps, if the command line has numbers of one option apart.
pub fn tip(args: &[OsString]) -> Option<String> {
    let at = args.iter().position(|arg| OF_NUMBERS.iter().any(|option| arg == option))?;
    let number = |arg: &&OsString| {
        let text = arg.to_str().map(|text| text.trim_matches(','));
        text.filter(|text| !text.is_empty() && text.split(',').all(|part| part.parse::<f32>().is_ok()))
            .is_some()
    };
    let numbers: Vec<&str> = args[at + 1..]
        .iter()
        .take_while(number)
        .filter_map(|arg| Some(arg.to_str()?.trim_matches(',')))
        .collect();
    (numbers.len() > 1).then(|| {
        let (option, together) = (args[at].to_string_lossy(), numbers.join(","));
        format!("tip: numbers of one option have commas between them, and no spaces: {option} {together}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_apart_are_put_together() {
        let tip = |line: &str| tip(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        let with = |numbers: &str| {
            Some(format!("tip: numbers of one option have commas between them, and no spaces: {numbers}"))
        };
        let apart = "jaguar compile net.onnx --mean 0.485 0.456 0.406 --calibrate samples";
        assert_eq!(tip(apart), with("--mean 0.485,0.456,0.406"));
        assert_eq!(tip("jaguar compile --std 0.2, 0.3, 0.4 net.onnx"), with("--std 0.2,0.3,0.4"));
        assert_eq!(tip("jaguar compile --mean -1 2"), with("--mean -1,2"));
        assert_eq!(tip("jaguar compile --mean 0.4,0.5,0.6 net.onnx --wrong"), None);
        assert_eq!(tip("jaguar compile --mean 0.4 net.onnx 3"), None);
    }
}
