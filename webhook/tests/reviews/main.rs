//! The webhook's router with recorded reviews, over caches that a scripted API server fills.

#[cfg(test)]
mod broken;
#[cfg(test)]
mod evictions;
#[cfg(test)]
mod objects;
#[cfg(test)]
mod world;
