# filled with the install rules
