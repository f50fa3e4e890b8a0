export { Fragment, createContext, h, render } from "preact";
export { useCallback, useContext, useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
export { batch, computed, effect, signal, untracked, useComputed, useSignal, useSignalEffect } from "@preact/signals";
import type { VNode } from "preact";
export function html(strings: TemplateStringsArray, ...values: unknown[]): VNode<any>;
export type { ComponentChildren, VNode } from "preact";
export type { ReadonlySignal, Signal } from "@preact/signals";
