//! The codec in memory, on damaged bytes, and against a live server.

mod damage;
mod live;
mod live_properties;
mod round_trip;
mod samples;
mod server;
mod streams;
