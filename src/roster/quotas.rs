//! How much an agent may use: by the node's configuration (`agent_` and the quota's name), and by its grant, which
//! outranks it in both directions (but for [`OF_A_PROCESS`], which it can only narrow). A token's quotas narrow only.

use serde_json::{Map, Value};
use std::time::Duration;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quota {
    /// CPU seconds of a hook, of the agent's process and of what it started.
    Cpu,
    /// Bytes in the agent's own directory, looked at when a hook ends and when another agent writes there.
    StateBytes,
    /// `ctx` calls a minute.
    Calls,
    /// Bytes of files a minute, read or searched through.
    ReadBytes,
    /// Bytes of HTTP bodies an hour, sent and received.
    HttpBytes,
    /// RLIMIT_AS of its processes, each by itself.
    Memory,
    /// RLIMIT_NOFILE of its processes.
    OpenFiles,
    /// RLIMIT_FSIZE of its processes.
    FileBytes,
}

/// Every quota.
pub const ALL: [Quota; 8] = [
    Quota::Cpu,
    Quota::StateBytes,
    Quota::Calls,
    Quota::ReadBytes,
    Quota::HttpBytes,
    Quota::Memory,
    Quota::OpenFiles,
    Quota::FileBytes,
];

/// Those that the kernel keeps, from a process's start on, and the least that an agent can live with.
pub const OF_A_PROCESS: [(Quota, u64); 3] =
    [(Quota::Memory, 64_000_000), (Quota::OpenFiles, 64), (Quota::FileBytes, 65_536)];

/// The name in a grant under which quotas stand.
pub const QUOTAS: &str = "quotas";

/// Quotas that are set; 0: none applies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quotas {
    set: [Option<u64>; ALL.len()],
}

impl Quota {
    /// As a grant calls it; the configuration's key has `agent_` before it.
    pub fn name(self) -> &'static str {
        match self {
            Quota::Cpu => "cpu_s",
            Quota::StateBytes => "state_bytes",
            Quota::Calls => "calls_per_minute",
            Quota::ReadBytes => "read_bytes_per_minute",
            Quota::HttpBytes => "http_bytes_per_hour",
            Quota::Memory => "memory_bytes",
            Quota::OpenFiles => "open_files",
            Quota::FileBytes => "file_bytes",
        }
    }

    /// For how long what is used counts; none where it is measured anew each time.
    pub fn window(self) -> Option<Duration> {
        match self {
            Quota::Calls | Quota::ReadBytes => Some(Duration::from_secs(60)),
            Quota::HttpBytes => Some(Duration::from_secs(3600)),
            _ => None,
        }
    }
}

impl Quotas {
    /// These, by quota.
    pub fn of(values: [(Quota, u64); ALL.len()]) -> Self {
        let mut quotas = Quotas::default();
        for (quota, value) in values {
            quotas.set[quota as usize] = Some(value);
        }
        quotas
    }

    /// How much; none, where nothing bounds it.
    pub fn get(&self, quota: Quota) -> Option<u64> {
        self.set[quota as usize].filter(|value| *value > 0)
    }

    /// Whether none is set.
    pub fn is_empty(&self) -> bool {
        self.set.iter().all(Option::is_none)
    }

    /// Reads an object of quotas.
    ///
    /// # Errors
    /// A name that is none, a value that is no whole number, nothing at all.
    pub fn read(value: &Value) -> Result<Quotas, String> {
        let names = || ALL.map(Quota::name).join(", ");
        let members =
            value.as_object().ok_or_else(|| format!("the quotas must be an object of {}", names()))?;
        let mut quotas = Quotas::default();
        for (name, value) in members {
            let quota = ALL.into_iter().find(|quota| quota.name() == name);
            let quota = quota.ok_or_else(|| format!("there is no quota {name:?}; there are {}", names()))?;
            let number = value.as_u64();
            let number =
                number.ok_or_else(|| format!("the quota {name} must be a whole number, 0 for none"))?;
            let least = OF_A_PROCESS.iter().find(|(kept, _)| *kept == quota).map_or(0, |(_, least)| *least);
            if number > 0 && number < least {
                return Err(format!("the quota {name} must be at least {least}, or 0 for none"));
            }
            quotas.set[quota as usize] = Some(number);
        }
        match quotas.is_empty() {
            true => Err(format!("the quotas name nothing; there are {}", names())),
            false => Ok(quotas),
        }
    }

    /// These where they are set, else those of `below`.
    pub fn over(&self, below: &Quotas) -> Quotas {
        let mut quotas = *below;
        for (here, value) in quotas.set.iter_mut().zip(self.set) {
            *here = value.or(*here);
        }
        quotas
    }

    /// The narrower of both.
    pub fn and(&self, other: &Quotas) -> Quotas {
        let mut quotas = Quotas::default();
        for ((here, one), other) in quotas.set.iter_mut().zip(self.set).zip(other.set) {
            // 0 is the widest there is.
            *here = [one, other].into_iter().flatten().min_by_key(|value| value.wrapping_sub(1));
        }
        quotas
    }

    /// As it stands in a file: those that are set.
    pub fn to_json(&self) -> Value {
        let set =
            ALL.iter().filter_map(|quota| Some((quota.name().to_owned(), self.set[*quota as usize]?.into())));
        Value::Object(set.collect::<Map<_, _>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn quotas_are_read_laid_over_others_and_narrowed() {
        let read = |value: Value| Quotas::read(&value).unwrap();
        let quotas = read(json!({"cpu_s": 5, "calls_per_minute": 0}));
        assert_eq!(
            (quotas.get(Quota::Cpu), quotas.get(Quota::Calls), quotas.get(Quota::ReadBytes)),
            (Some(5), None, None)
        );
        assert_eq!(Quotas::read(&quotas.to_json()).unwrap(), quotas);
        let base = Quotas::of(ALL.map(|quota| (quota, 10)));
        let over = quotas.over(&base);
        assert_eq!(
            (over.get(Quota::Cpu), over.get(Quota::Calls), over.get(Quota::HttpBytes)),
            (Some(5), None, Some(10))
        );
        let both = read(json!({"cpu_s": 50, "calls_per_minute": 0, "state_bytes": 3})).and(&base);
        assert_eq!(
            [both.get(Quota::Cpu), both.get(Quota::Calls), both.get(Quota::StateBytes)],
            [Some(10), Some(10), Some(3)]
        );
        for (odd, part) in [
            (json!([]), "must be an object"),
            (json!({}), "name nothing"),
            (json!({"cpu": 1}), "no quota \"cpu\"; there are cpu_s, "),
            (json!({"cpu_s": -1}), "whole number"),
            (json!({"cpu_s": "1"}), "whole number"),
            (json!({"open_files": 3}), "open_files must be at least 64"),
        ] {
            assert!(Quotas::read(&odd).unwrap_err().contains(part), "{odd}");
        }
    }
}
