"""forecasting"""
