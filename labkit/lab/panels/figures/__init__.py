"""What is drawn: the theme, curves, planes, images, and the widget that shows them."""
