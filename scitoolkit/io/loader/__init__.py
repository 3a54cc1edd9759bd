"""io/loader"""
