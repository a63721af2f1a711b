//! What a client is told of a network: no weight, no layer.

use jaguar_ckks::Parameters;
use jaguar_ckks::layout::Grid;
use serde::{Deserialize, Serialize};

use super::plan::{MOST_CHECKS, NetworkError, Plan};

/// Most ciphertexts of an input: 210 MB for N = 2^16. What a server says must not make a client take more.
const MOST_CIPHERTEXTS: usize = 256;

/// All that a client knows of a network: where its input's values stand, and how its logits are scaled. As JSON it is what a peer says;
/// [`Public::parse`] checks it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Public {
    /// The parameter set's name.
    pub set: String,
    /// `[C, H, W]` of the input.
    pub input: [usize; 3],
    /// Values from a column of the input to the next, and from a row to the next.
    pub pitches: [usize; 2],
    /// The largest absolute value of an input.
    pub input_bound: f64,
    /// How many logits there are.
    pub outputs: usize,
    /// The bound by which logits are divided: none may be larger.
    pub output_bound: f64,
    /// How many inputs a ciphertext has room for, and its answer logits of.
    pub images: usize,
    /// How many values lie from an input to the next one.
    pub apart: usize,
    /// How many numbers stand behind the logits that are zero in a right answer ([`Plan::checks`]).
    pub checks: usize,
}

impl Plan {
    /// What a client of this plan is told.
    ///
    /// # Errors
    /// If the plan was made for another set, or a layer has no bound.
    pub fn public(&self, params: &Parameters) -> Result<Public, NetworkError> {
        self.check(params)?;
        self.calibrated()?;
        let grid = &self.grids[0];
        Ok(Public {
            set: params.name().to_owned(),
            input: grid.shape(),
            pitches: [grid.column_pitch(), grid.row_pitch()],
            input_bound: self.description.input_bound,
            outputs: self.outputs(),
            output_bound: self.description.output.bound.unwrap_or(1.0),
            images: self.description.images,
            apart: self.apart,
            checks: self.checks()?,
        })
    }
}

impl Public {
    /// Reads JSON, for this set, and checks it.
    ///
    /// # Errors
    /// [`NetworkError::Public`]: says what cannot be right.
    pub fn parse(text: &str, params: &Parameters) -> Result<Self, NetworkError> {
        let refuse = |why: String| Err(NetworkError::Public(why));
        let public: Self = match serde_json::from_str(text) {
            Ok(public) => public,
            Err(error) => return refuse(error.to_string()),
        };
        let Self { set, outputs, checks, input_bound, output_bound, images, apart, .. } = &public;
        if set != params.name() {
            return refuse(format!("it is of parameter set {set:?}, not {:?}", params.name()));
        }
        if *outputs == 0 || *outputs > params.values() {
            return refuse(format!("{outputs} outputs"));
        }
        if [images, apart].contains(&&0) || apart.checked_mul(*images).is_none_or(|all| all > params.values())
        {
            return refuse(format!("{images} inputs in a ciphertext, {apart} values apart"));
        }
        // (Neither is larger than a ciphertext.)
        let logits = images * outputs;
        if *checks > MOST_CHECKS || logits + checks > params.n() {
            return refuse(format!("{checks} checks behind {logits} logits"));
        }
        if [input_bound, output_bound].iter().any(|bound| !(bound.is_finite() && **bound > 0.0)) {
            return refuse(format!("bounds {input_bound} and {output_bound}"));
        }
        let grid = public.grid()?;
        let room = if *images == 1 { params.values() } else { *apart };
        grid.fits(0, room).map_err(|error| NetworkError::Public(error.to_string()))?;
        if public.ciphertexts()? > 1 && *images > 1 {
            return refuse(format!("{images} inputs in {} ciphertexts", public.ciphertexts()?));
        }
        Ok(public)
    }

    /// Where the input stands.
    ///
    /// # Errors
    /// If sizes and pitches belong to no grid.
    pub fn grid(&self) -> Result<Grid, NetworkError> {
        let (input, [columns, rows]) = (self.input, self.pitches);
        let refuse =
            |why: String| NetworkError::Public(format!("{why}: {input:?} with pitches {columns} and {rows}"));
        // A row is its width and its padding.
        let padding = rows.checked_div(columns).and_then(|row| row.checked_sub(input[2]));
        let padding = padding.ok_or_else(|| refuse("no grid".into()))?;
        let grid = Grid::new(input, padding, columns).map_err(|error| refuse(error.to_string()))?;
        if grid.row_pitch() == rows { Ok(grid) } else { Err(refuse("no grid".into())) }
    }

    /// How many ciphertexts an input takes.
    ///
    /// # Errors
    /// As [`Public::grid`]; if there are more than 256.
    pub fn ciphertexts(&self) -> Result<usize, NetworkError> {
        match self.grid()?.polynomials() {
            count @ 0..=MOST_CIPHERTEXTS => Ok(count),
            count => Err(NetworkError::Public(format!(
                "an input of {count} ciphertexts, at most {MOST_CIPHERTEXTS}"
            ))),
        }
    }
}
