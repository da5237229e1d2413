//! How many lines without a good signature an address may send. Beyond that, strangers from there are not
//! looked at for a while, and their lines not written down one by one; whoever is known (the admin, an operator,
//! an agent whose secret is pinned) is served from there as ever.
//!
//! An address is an IPv4 address, or the first 64 bits of an IPv6 one: who has one has them all.

use crate::sync::lock;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Instant;

/// How many at once.
const BURST: f64 = 100.0;
/// How many a second it recovers.
const A_SECOND: f64 = 1.0;
/// How many addresses are remembered.
const ADDRESSES: usize = 4096;

/// The budgets of all addresses.
#[derive(Default)]
pub(super) struct Budgets {
    spent: Mutex<HashMap<Prefix, Spent>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Prefix {
    V4([u8; 4]),
    V6([u8; 8]),
}

struct Spent {
    /// What is not recovered yet.
    count: f64,
    at: Instant,
    /// It was told that the budget is spent, and it has not recovered since.
    told: bool,
}

/// What a failure came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// There is some left.
    Some,
    /// This was the last; it is to be told once.
    Last,
    /// There was none.
    None,
}

impl Spent {
    fn now(&self, now: Instant) -> f64 {
        (self.count - now.saturating_duration_since(self.at).as_secs_f64() * A_SECOND).max(0.0)
    }
}

impl Budgets {
    /// Whether strangers from this address are looked at now.
    pub(super) fn has_some(&self, address: IpAddr, now: Instant) -> bool {
        lock(&self.spent).get(&prefix(address)).is_none_or(|spent| spent.now(now) <= BURST - 1.0)
    }

    /// A line from this address had no good signature.
    pub(super) fn spend(&self, address: IpAddr, now: Instant) -> Left {
        let mut all = lock(&self.spent);
        let prefix = prefix(address);
        if all.len() >= ADDRESSES && !all.contains_key(&prefix) {
            all.retain(|_, spent| spent.now(now) > 0.0);
            if all.len() >= ADDRESSES {
                // Whoever has spent least is forgotten: it gains the least by it.
                let least = all.iter().min_by(|a, b| a.1.now(now).total_cmp(&b.1.now(now)));
                if let Some(least) = least.map(|(prefix, _)| *prefix) {
                    all.remove(&least);
                }
            }
        }
        let spent = all.entry(prefix).or_insert(Spent { count: 0.0, at: now, told: false });
        let before = spent.now(now);
        if before <= BURST / 2.0 {
            spent.told = false;
        }
        if before > BURST - 1.0 {
            return Left::None;
        }
        (spent.count, spent.at) = (before + 1.0, now);
        if spent.count > BURST - 1.0 && !spent.told {
            spent.told = true;
            return Left::Last;
        }
        Left::Some
    }
}

fn prefix(address: IpAddr) -> Prefix {
    match address.to_canonical() {
        IpAddr::V4(address) => Prefix::V4(address.octets()),
        IpAddr::V6(address) => {
            let mut head = [0; 8];
            head.copy_from_slice(&address.octets()[..8]);
            Prefix::V6(head)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;
    use std::time::Duration;

    fn spend_all(budgets: &Budgets, address: IpAddr, now: Instant) {
        let all: Vec<Left> = (0..100).map(|_| budgets.spend(address, now)).collect();
        assert!(all[..99].iter().all(|left| *left == Left::Some) && all[99] == Left::Last);
        assert_eq!(budgets.spend(address, now), Left::None);
        assert!(!budgets.has_some(address, now));
    }

    #[test]
    fn it_is_spent_told_once_and_recovers() {
        let (budgets, now) = (Budgets::default(), Instant::now());
        let address: IpAddr = "192.0.2.1".parse().unwrap();
        spend_all(&budgets, address, now);
        assert!(!budgets.has_some("::ffff:192.0.2.1".parse().unwrap(), now), "the same address");
        assert!(budgets.has_some("192.0.2.2".parse().unwrap(), now));
        let later = now + Duration::from_secs(1);
        assert_eq!(budgets.spend(address, later), Left::Some, "it was told already");
        assert_eq!(budgets.spend(address, later), Left::None);
        spend_all(&budgets, address, later + Duration::from_secs(200));
    }

    #[test]
    fn a_network_of_64_bits_is_one_address_and_a_flood_of_them_is_bounded() {
        let (budgets, now) = (Budgets::default(), Instant::now());
        spend_all(&budgets, "2001:db8::1".parse().unwrap(), now);
        assert!(!budgets.has_some("2001:db8::ffff:2".parse().unwrap(), now));
        assert!(budgets.has_some("2001:db8:0:1::1".parse().unwrap(), now));
        for number in 0..10_000_u128 {
            budgets.spend(Ipv6Addr::from((0xfd00 << 112) | number << 64).into(), now);
        }
        assert!(lock(&budgets.spent).len() <= ADDRESSES);
        assert!(!budgets.has_some("2001:db8::1".parse().unwrap(), now), "who spent most is not forgotten");
    }
}
