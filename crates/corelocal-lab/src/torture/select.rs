//! The selection of triples: `SECTION`, `SECTION@INSTRUCTION`, `SECTION@INSTRUCTION+DISTURBANCE`, any part of which
//! may be left out. Reports name triples in this form, and the command line accepts it.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// A disturbance of a stopped thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// The stop alone.
    Stop,
    /// A signal, whose handler runs the same operation on the same object.
    Signal,
    /// The target continues on another cpu.
    Migrate,
    /// Another thread runs the same operation on the same object and the same cpu.
    Conflict,
    /// The target forks in a signal handler, and both parent and child continue.
    Fork,
    /// The target loses its registration in a signal handler.
    Unregister,
    /// Another thread takes all slots away from their ids, and gives them back after the operation.
    Revoke,
}

impl Disturbance {
    /// All disturbances.
    pub const ALL: [Disturbance; 7] = [
        Disturbance::Stop,
        Disturbance::Signal,
        Disturbance::Migrate,
        Disturbance::Conflict,
        Disturbance::Fork,
        Disturbance::Unregister,
        Disturbance::Revoke,
    ];

    /// Returns its name, one word.
    pub fn name(self) -> &'static str {
        match self {
            Disturbance::Stop => "stop",
            Disturbance::Signal => "signal",
            Disturbance::Migrate => "migrate",
            Disturbance::Conflict => "conflict",
            Disturbance::Fork => "fork",
            Disturbance::Unregister => "unregister",
            Disturbance::Revoke => "revoke",
        }
    }
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Disturbance {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// The triples to try; the default is all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The name of the section. Empty for all.
    pub section: String,
    /// The number of an instruction. The first one of the section has 0.
    pub instruction: Option<i64>,
    /// The disturbance.
    pub disturbance: Option<Disturbance>,
}

impl Selection {
    /// Returns `true` if it selects all triples.
    pub fn is_all(&self) -> bool {
        *self == Selection::default()
    }

    /// Returns `true` if it selects triples of this section.
    pub fn has_section(&self, name: &str) -> bool {
        self.section.is_empty() || self.section == name
    }

    /// Returns `true` if it selects triples at this instruction.
    pub fn has_instruction(&self, number: i64) -> bool {
        self.instruction.is_none_or(|chosen| chosen == number)
    }

    /// Returns `true` if it selects triples with this disturbance.
    pub fn has_disturbance(&self, disturbance: Disturbance) -> bool {
        self.disturbance.is_none_or(|chosen| chosen == disturbance)
    }
}

impl FromStr for Selection {
    type Err = String;

    fn from_str(text: &str) -> Result<Selection, String> {
        let (rest, disturbance) = match text.split_once('+') {
            None => (text, None),
            Some((rest, name)) => {
                let found = Disturbance::ALL.into_iter().find(|known| known.name() == name);
                let known = Disturbance::ALL.map(Disturbance::name).join(", ");
                let found = found.ok_or(format!("after `+` stands one of {known}"))?;
                (rest, Some(found))
            }
        };
        let (section, instruction) = match rest.split_once('@') {
            None => (rest, None),
            Some((section, number)) => {
                let number = number.parse();
                let number = number.map_err(|_| "after `@` stands an instruction's number")?;
                (section, Some(number))
            }
        };
        Ok(Selection { section: section.to_owned(), instruction, disturbance })
    }
}

/// One of several shares of the instructions, so that several machines together try all of them: `2/4` is the second,
/// the sixth, and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    number: usize,
    of: usize,
}

impl Share {
    /// The share of all instructions.
    pub const WHOLE: Share = Share { number: 1, of: 1 };

    /// Returns `true` if it is the whole.
    pub fn is_whole(self) -> bool {
        self.of == 1
    }

    /// Returns `true` if it includes the instruction with this many before it.
    pub fn has(self, before: usize) -> bool {
        before % self.of == self.number - 1
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Share, String> {
        let parts = text.split_once('/').and_then(|(number, of)| {
            Some(Share { number: number.parse().ok()?, of: of.parse().ok()? })
        });
        match parts {
            Some(share) if (1..=share.of).contains(&share.number) => Ok(share),
            _ => Err("give a share such as 1/4, which is the first of four".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        let shares: Vec<Share> = ["1/3", "2/3", "3/3"].map(|text| text.parse().unwrap()).to_vec();
        for before in 0..10 {
            assert_eq!(shares.iter().filter(|share| share.has(before)).count(), 1);
        }
        assert!((0..10).all(|before| Share::WHOLE.has(before)));
        assert_eq!("1/1".parse(), Ok(Share::WHOLE));
        for text in ["", "1", "0/4", "5/4", "1/0", "0/0", "-1/4", "1/4/4", "a/b"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
    }

    #[test]
    fn parts_may_be_left_out() {
        let whole: Selection = "counter-cid/add@-1+signal".parse().unwrap();
        let expected = Selection {
            section: "counter-cid/add".to_owned(),
            instruction: Some(-1),
            disturbance: Some(Disturbance::Signal),
        };
        assert_eq!(whole, expected);
        assert!("".parse::<Selection>().unwrap().is_all());
        assert_eq!("@3".parse::<Selection>().unwrap().instruction, Some(3));
        assert_eq!("+fork".parse::<Selection>().unwrap().disturbance, Some(Disturbance::Fork));
    }

    #[test]
    fn nonsense_is_told() {
        for text in ["a@", "a@x", "a+kick", "+", "a@1@2", "a@99999999999999999999"] {
            assert!(text.parse::<Selection>().is_err(), "{text}");
        }
    }
}
