// The list of screens. All but the first are loaded when they are asked for.

import type { Component } from 'svelte';
import Pipelines from '../screens/Pipelines.svelte';
import type { Role } from './session.svelte';
import type { Key } from '../i18n/index.svelte';

// Screens without parameters take no properties at all, which no narrower type can say.
export type ScreenComponent = Component<any>;
type Section = 'pipelines' | 'targets' | 'connections' | 'runners' | 'python' | 'audit';

export interface Screen {
  path: string;
  section: Section;
  load: () => Promise<{ default: ScreenComponent }>;
}

export interface Found {
  screen: Screen;
  parameters: Record<string, string>;
}

const pipeline = () => import('../screens/Pipeline.svelte');
const nowhere: Screen = { path: '', section: 'pipelines', load: () => import('../screens/Nowhere.svelte') };

const screens: Screen[] = [
  { path: '/', section: 'pipelines', load: async () => ({ default: Pipelines }) },
  { path: '/new', section: 'pipelines', load: () => import('../screens/NewPipeline.svelte') },
  { path: '/pipelines/:name', section: 'pipelines', load: pipeline },
  { path: '/pipelines/:name/:tab', section: 'pipelines', load: pipeline },
  { path: '/pipelines/:name/:tab/:id', section: 'pipelines', load: pipeline },
  { path: '/targets', section: 'targets', load: () => import('../screens/Targets.svelte') },
  { path: '/targets/:target', section: 'targets', load: () => import('../screens/Target.svelte') },
  { path: '/connections', section: 'connections', load: () => import('../screens/Connections.svelte') },
  { path: '/runners', section: 'runners', load: () => import('../screens/Runners.svelte') },
  { path: '/python', section: 'python', load: () => import('../screens/PythonTasks.svelte') },
  { path: '/audit', section: 'audit', load: () => import('../screens/Audit.svelte') },
];

/** The sections in the order of the sidebar. */
export const sections: { section: Section; path: string; title: Key; role?: Role }[] = [
  { section: 'pipelines', path: '/', title: 'nav.pipelines' },
  { section: 'targets', path: '/targets', title: 'nav.targets' },
  { section: 'connections', path: '/connections', title: 'nav.connections' },
  { section: 'runners', path: '/runners', title: 'nav.runners' },
  { section: 'python', path: '/python', title: 'nav.python' },
  { section: 'audit', path: '/audit', title: 'nav.audit', role: 'admin' },
];

export function find(path: string): Found {
  for (const screen of screens) {
    const parameters = match(screen.path, path);
    if (parameters) return { screen, parameters };
  }
  return { screen: nowhere, parameters: {} };
}

/** `:name` stands for one part of a path. */
function match(pattern: string, path: string): Record<string, string> | null {
  const [expected, given] = [pattern.split('/'), path.split('/')];
  if (expected.length !== given.length) return null;
  const parameters: Record<string, string> = {};
  for (const [place, part] of expected.entries()) {
    const value = decodeURIComponent(given[place] ?? '');
    if (part.startsWith(':')) parameters[part.slice(1)] = value;
    else if (part !== value) return null;
  }
  return parameters;
}
