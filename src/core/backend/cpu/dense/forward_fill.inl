// Entry points of the forward engine for panels of one kind.

template <class Panel, class Cell>
void FillDenseForwardCell(CellKernels<RealOf<Panel>>& kernels) {
  FillRoundedInputs<Panel>(kernels);
  kernels.forward_panels = &ForwardPanels<Panel, Cell>;
  kernels.pack_forward = &PackForward<Panel, Cell>;
  kernels.dense_input_panels = &DenseInputPanels<Panel, Cell>;
  kernels.pack_dense_input = &PackDenseInput<Panel, Cell>;
  kernels.dense_forward = &RunDenseForward<Panel, Cell>;
  kernels.step_panels = &DenseStepPanels<Panel, Cell>;
  kernels.pack_step = &PackDenseStep<Panel, Cell>;
  kernels.step = &RunDenseStep<Panel, Cell>;
}

template <class Panel>
void FillDenseForwardAs(int cell, CellKernels<RealOf<Panel>>& kernels) {
  WithDenseCell(cell, [&](auto tag) { FillDenseForwardCell<Panel, typename decltype(tag)::type>(kernels); });
}
