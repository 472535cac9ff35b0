-- The accounts. No pipeline may read this schema, and the seed gives nobody a usable password.
create schema auth;

create table auth.users (
    id            uuid primary key,
    login         text not null unique,
    email         text not null unique,
    password_hash text not null,
    created       timestamptz not null default now()
);
