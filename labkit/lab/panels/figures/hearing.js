// anywidget waits two seconds for a widget's script. Where that takes longer, as in a page
// that is busy, it drops for good whatever the kernel says to this widget. A script that
// runs has come: from here on messages are taken in as ipywidgets itself does it.
async function hearing(model) {
  const own = await model.widget_manager.get_model(model.get("own"));
  const { _handle_comm_msg: take } = Object.getPrototypeOf(Object.getPrototypeOf(own));
  own.comm.on_msg(take.bind(own));
}

