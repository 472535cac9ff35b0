import { mount } from 'svelte';
import App from './App.svelte';
import { clock } from './app/clock.svelte';
import { pipelines } from './app/pipelines.svelte';
import { router } from './app/router.svelte';
import { session } from './app/session.svelte';
import { appearance } from './app/theme.svelte';
import { speech } from './i18n/index.svelte';
import './styles/base.css';

appearance.start();
clock.start();
void session.start();
// The list is asked for while it is still found out who asks.
if (router.path === '/') void pipelines.refresh();
await speech.start();
mount(App, { target: document.body });
