// Fills in the engines of scan cells, but those of whole layers. Include after scan/gradient.inl.

template <class Real, class Cell>
void FillScans(CellKernels<Real>& kernels) {
  kernels.lanes = Lanes<Real>::lanes;
  kernels.scan_forward = &RunScanForward<Real, Cell>;
  kernels.scan_forward_summary = &RunScanForwardSummary<Real, Cell>;
  kernels.scan_backward.run = &RunScanBackward<Real, Cell>;
  kernels.scan_backward.summary = &RunScanBackwardSummary<Real, Cell>;
}

template <class Real, class Cell>
void FillScanCell(CellKernels<Real>& kernels) {
  FillScans<Real, Cell>(kernels);
  kernels.scan_backward.panels = &ScanGradientPanels<Real>;
  kernels.scan_backward.pack = &PackScanGradient<Real>;
  kernels.scan_backward.pack_input = &PackScanInput<Real>;
  kernels.scan_backward.input_gradient = &RunScanInputGradient<Real>;
  kernels.scan_backward.weight_gradient = &RunScanWeightGradient<Real>;
}
