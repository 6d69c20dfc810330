//! What happened in the lab, step by step.

use std::fmt::Display;
use std::time::{Duration, Instant};

use serde::Serialize;

/// One step.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Who took it: a node, or what stands around it.
    pub actor: String,
    /// What was tried.
    pub name: String,
    /// Whether it held.
    pub held: bool,
    /// What was seen, or why it did not hold.
    pub detail: String,
    /// How long it took.
    pub milliseconds: f64,
}

/// Where steps are told as they happen.
pub trait Tell: Send {
    /// A step is over.
    fn step(&mut self, step: &Step);
}

/// All steps of a lab.
pub struct Story {
    steps: Vec<Step>,
    began: Instant,
    tell: Box<dyn Tell>,
}

impl Story {
    /// An empty story.
    pub fn new(tell: Box<dyn Tell>) -> Self {
        Story {
            steps: Vec::new(),
            began: Instant::now(),
            tell,
        }
    }

    /// Takes a step and remembers how it went. A step that does not hold does not end the story: what follows shows
    /// how far the damage goes.
    pub fn step<T, E: Display>(
        &mut self,
        actor: &str,
        name: &str,
        act: impl FnOnce() -> Result<(T, String), E>,
    ) -> Option<T> {
        let began = Instant::now();
        let outcome = act();
        let took = began.elapsed();
        let (value, held, detail) = match outcome {
            Ok((value, detail)) => (Some(value), true, detail),
            Err(error) => (None, false, error.to_string()),
        };
        let step = Step {
            actor: actor.to_owned(),
            name: name.to_owned(),
            held,
            detail,
            milliseconds: (took.as_secs_f64() * 10_000.0).round() / 10.0,
        };
        self.tell.step(&step);
        self.steps.push(step);
        value
    }

    /// The end.
    pub fn end(self) -> Outcome {
        Outcome {
            took: self.began.elapsed(),
            steps: self.steps,
        }
    }
}

/// How a lab went.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Its steps.
    pub steps: Vec<Step>,
    /// How long it took in all.
    pub took: Duration,
}

impl Outcome {
    /// Whether every step held.
    pub fn held(&self) -> bool {
        self.steps.iter().all(|step| step.held)
    }
}
