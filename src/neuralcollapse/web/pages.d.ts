// What the pages' scripts find on the page, and what the server answers: for the type checker alone.

interface PlotlyNode extends HTMLElement {
  data?: any[];
  on?(event: string, heard: (event: any) => void): void;
  removeAllListeners?(event: string): void;
}

declare const Plotly: {
  react(node: HTMLElement, data: object[], layout: object, config: object): Promise<void>;
  newPlot(node: HTMLElement, data: object[], layout: object, config: object): Promise<void>;
  addFrames(node: HTMLElement, frames: object[]): Promise<void>;
  purge(node: HTMLElement): void;
  Fx: { hover(node: HTMLElement, at: object, subplots: string[], quiet: boolean): void; unhover(node: HTMLElement): void };
};

declare const module: { exports: object } | undefined;

interface Window {
  Plotly: typeof Plotly;
  collapseView: unknown;
  neuralcollapse: {
    colours: () => { ink: string; grid: string; card: string; text: string };
    dressed: (layout: Record<string, any>, own: boolean) => Record<string, any>;
    options: object;
    seesSolids: boolean;
  };
}

type LossParameter = { name: string; value: number; min: number; max: number; log?: boolean; step?: number };
type LossAnswer = { name: string; summary: string; parameters: LossParameter[] };
type ModelField = {
  name: string;
  kind: string;
  label?: string | null;
  optional?: boolean;
  zero?: boolean;
  choices?: string[];
  value?: number | string | null;
  min?: number;
  max?: number;
  log?: boolean;
  step?: number;
};
type About = {
  version: string;
  losses: LossAnswer[];
  models: Record<string, ModelField[]>;
  model_words: Record<string, string>;
  method_summaries: Record<string, string>;
  suffixes: string[];
  places: string[];
  results: string | null;
  limits: {
    upload: number;
    solve: { max_iter: number; classes: number; samples: number; dim: number; seconds: number };
  };
};

type Verdict = {
  verdict: string;
  gap: number | null;
  curvature: number | null;
  escape: { W: number[]; H: number[]; b: number[] | null } | null;
};

// Optimum, Solve, Landscape -----------------------------------------------------------------------------------------

type Rows3 = { weight: number[][] | null; features: number[][]; labels: number[] };
type CurveAnswer = {
  name: string;
  title: string;
  x: number[];
  y: number[];
  x_label: string;
  y_label: string;
  minimum: [number, number] | null;
  marks: { x: number; text: string }[];
};
type OptimumAnswer = {
  optimum: {
    value: number;
    regime: string;
    logit_scale: number;
    weight_norm: number | null;
    feature_norm: number;
    bias: number | null;
    proved: boolean;
    note: string;
    simplices: number[] | null;
  } | null;
  meaning: string;
  reason: string;
  formula: string;
  command: string;
  lower_bound: number | null;
  view: (Rows3 & { share: number }) | null;
  grams: Record<string, number[][]> | null;
  curves: CurveAnswer[];
  dimension: string;
  by_dimension: { dims: number[]; values: number[] } | null;
};
type SolveAnswer = {
  certificate: {
    verdict: string;
    value: number;
    lower_bound: number | null;
    gap: number | null;
    gradient_norm: number;
    curvature: number | null;
    reason: string;
    bound_source: string;
  };
  method: string;
  outcome: string;
  iterations: number;
  seconds: number;
  message: string;
  command: string;
  history: Record<string, (number | null)[]>;
  view: { frames: (Omit<Rows3, "labels"> & { iteration: number })[]; labels: number[]; share: number };
};
type SliceAnswer = {
  s: number[];
  theta: number[];
  value: number[][];
  boundary: number;
  lowest: { s: number; theta: number; value: number };
  arrows: { s: number[]; theta: number[]; down_s: number[][]; down_theta: number[][] };
};
type PhasesAnswer = {
  decays: number[];
  regimes: string[];
  codes: number[][];
  values: number[][];
  logit_scales: number[][];
  boundary: {
    exchange: number;
    first_order: boolean;
    zero_stable_above: number;
    collapse_exists_below: number;
  } | null;
};

// Your network ------------------------------------------------------------------------------------------------------

type GaugeAnswer = {
  property: string;
  title: string;
  metric: string;
  value: number | null;
  position: number | null;
  interval: [number, number] | null;
  span: [number, number] | null;
  words: string;
};
type MetricAnswer = {
  name: string;
  property: string;
  meaning: string;
  value: number | null;
  interval: [number, number] | null;
  at_collapse: number | null;
  at_random: string;
  better: string;
  definition: string;
  reason: string | null;
  paper: string;
};
type Network = {
  title: string;
  headline: string;
  accuracy: number | null;
  notes: string[];
  names: string[];
  classes: number;
  dim: number;
  gauges: GaugeAnswer[];
  metrics: MetricAnswer[];
  gram: { means: number[][] | null; classifier: number[][] | null };
  view: {
    classes: number[];
    dim: number;
    means: number[][];
    classifier: number[][] | null;
    samples: number[][];
    labels: number[];
  } | null;
  pair: { classes: [number, number]; first: number[]; second: number[]; cdnv: number | null } | null;
  margins: { share: number[]; margin: number[]; at_collapse: number } | null;
  spread: number[] | null;
  layers: { name: string; nc1: number | null; nc1_quotient: number | null }[];
};
type NetworkFrame = { number: number; name: string; step: number | null; network: Network };
type NetworkAnswer = { title: string; frames: NetworkFrame[]; history: Record<string, any>[] };

// Results -----------------------------------------------------------------------------------------------------------

type PartAnswer = {
  says: string;
  source: string;
  kind: string;
  verdict: string;
  measured: number | null;
  low: number | null;
  high: number | null;
  limit: string;
  why: string;
  erratum: number | string | null;
};
type StudyRow = { id: string; verdict?: string; profile?: string; question?: string; error?: string };
type StudyAnswer = {
  id: string;
  paper: string;
  figures?: (string | number)[];
  verdict?: string;
  question?: string;
  profile: string;
  setting: string | null;
  variation: object | null;
  cells: number;
  failures: string[];
  parts?: PartAnswer[];
  picture: boolean;
  table: Record<string, unknown>[];
  rows: number;
};
